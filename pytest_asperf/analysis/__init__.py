"""Functions of values: metrics, statistics, guards and verdicts."""
