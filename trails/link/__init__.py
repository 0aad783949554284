"""The session between a pump and a Collector."""
