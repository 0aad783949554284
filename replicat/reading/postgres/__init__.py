"""PostgreSQL read in chunks, and hashed by ranges."""
