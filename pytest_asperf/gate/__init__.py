"""What a gate decides: its cells, the default plan, and the summary of their verdicts."""
