"""Other tools' output, read, measured with intervals and held against the validity guards."""
