"""What runs inside a partition of a Spark job: records in, steps for the target out."""
