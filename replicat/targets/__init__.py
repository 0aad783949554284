"""Kinds of target: a folder for each, and what those that speak SQL share."""
