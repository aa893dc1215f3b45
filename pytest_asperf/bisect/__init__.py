"""Which build first fails a gate."""
