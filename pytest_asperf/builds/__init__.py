"""From a build's name to the command that starts a worker: made once, kept, listed, pruned."""
