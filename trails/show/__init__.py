"""`logdump` as a prompt: one file of a trail, record by record."""
