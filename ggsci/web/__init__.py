"""The page of a Manager, and /metrics."""
