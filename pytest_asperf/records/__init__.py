"""Records of a session's measurements and verdicts: types, and the one encoder and decoder."""
