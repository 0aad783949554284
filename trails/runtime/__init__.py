"""What every process needs to be one."""
