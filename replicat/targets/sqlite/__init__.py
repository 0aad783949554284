"""An SQLite file as a target."""
