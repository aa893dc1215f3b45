"""Records of what a session measured and judged: their types, and the one encoder and decoder."""
