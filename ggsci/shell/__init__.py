"""The prompt for a person at a terminal."""
