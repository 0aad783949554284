"""Plain values that all of Replicat speaks in: targets, plans, rows as text."""
