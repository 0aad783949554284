"""An SQLite file as a source."""
