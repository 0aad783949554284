"""Conflict detection: what is compared, and what is decided."""
