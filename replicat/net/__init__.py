"""From records to what a target applies: net effects by key, and runs of rows without one."""
