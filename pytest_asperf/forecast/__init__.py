"""What sizes and bandwidth say before a run."""
