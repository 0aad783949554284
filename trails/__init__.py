"""The kernel of Trailgate: trails, checkpoints, the wire session, and what every process needs to be one."""
