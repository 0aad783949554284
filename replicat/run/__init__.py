"""The process: Replicat itself, its checks, its heartbeats."""
