"""Spark SQL in COLMAP, WHERE and FILTER: compiled at START, evaluated in the batch's own Spark job."""
