"""MySQL and MariaDB as sources: the binary log, read and decoded here."""
