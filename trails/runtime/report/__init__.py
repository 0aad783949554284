"""What a process tells people: reports, the event log, statistics, metrics."""
