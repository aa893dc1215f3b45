"""The commands of `asperf`, one module each.

What only one command needs is imported in it: numpy and scipy would make every `asperf --help`
wait.
"""
