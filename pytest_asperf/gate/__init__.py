"""The decisions of a gate: its checks, the default plan, and the summary of their verdicts."""
