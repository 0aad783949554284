"""MySQL and MariaDB read in chunks, and hashed by ranges."""
