"""From a build that a user names to what a worker starts from: made once, kept, listed, pruned."""
