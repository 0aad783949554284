"""Expressions of a MAP: GoldenGate functions and Spark SQL, compiled at START."""
