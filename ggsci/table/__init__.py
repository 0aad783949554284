"""The table of commands, and the parser that reads it."""
