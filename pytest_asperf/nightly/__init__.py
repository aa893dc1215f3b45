"""A night's measurement: what changed since the last one, and which series took a step."""
