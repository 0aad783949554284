"""What becomes of a change that the target refuses: the ladder, REPERROR, discards, exceptions, replay."""
