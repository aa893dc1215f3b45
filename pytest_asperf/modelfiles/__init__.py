"""Model files: read, checked, converted, quantized, and kept in a cache."""
