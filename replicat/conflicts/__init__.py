"""Conflict detection and resolution: COMPARECOLS and RESOLVECONFLICT."""
