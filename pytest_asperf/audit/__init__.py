"""Output of other tools: read, given intervals, and checked by the validity guards."""
