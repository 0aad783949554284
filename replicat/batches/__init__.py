"""From the trail to batches and Spark jobs."""
