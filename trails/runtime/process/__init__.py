"""A process: its loop, its start, its control socket, its checks."""
