"""Statements that change shapes, read from the log of MySQL and MariaDB; and the shapes that they make."""
