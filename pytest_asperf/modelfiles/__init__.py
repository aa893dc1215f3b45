"""Model files: read, checked, converted, quantised, and kept in a cache."""
