"""The Manager of a home."""
