"""Credentials and master keys."""
