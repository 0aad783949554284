"""Layouts of what commands print: facts in, lines out."""
