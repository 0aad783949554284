"""Changes of shape: from the source's shapes to the target's statements."""
