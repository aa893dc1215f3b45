"""The commands of `asperf`, one module each."""
