"""The parent's side of every measurement: what is asked of a worker, in which order."""
