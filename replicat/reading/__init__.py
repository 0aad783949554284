"""How Replicat reads a source database: rows of a table as they are at one moment, in parts of its key."""
