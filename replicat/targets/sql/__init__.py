"""What all targets that speak SQL share."""
