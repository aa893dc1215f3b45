"""A nightly run: the changes since the last one, and the series with a step."""
