"""Pipelines: their stages, which one holds the others back, and whether they are seen to work."""
