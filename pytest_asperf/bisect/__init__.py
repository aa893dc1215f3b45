"""The search for the build that first fails a gate."""
