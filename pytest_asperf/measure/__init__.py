"""The parent's side of every measurement: the requests to a worker, and their order."""
