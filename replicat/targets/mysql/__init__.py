"""MySQL and MariaDB as a target."""
