"""SQLite read in chunks."""
