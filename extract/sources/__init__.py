"""The sources: a folder for each database."""
