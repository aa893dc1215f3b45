"""From measurements to verdicts, one module per kind of assertion."""
