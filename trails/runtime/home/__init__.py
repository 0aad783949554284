"""A home: its folders, and what is registered there."""
