"""The language of parameter files."""
