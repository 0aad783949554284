"""What each command does; the table of commands names these functions."""
