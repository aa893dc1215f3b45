"""The commands of `asperf`, one module each.

Each command imports its own needs: numpy and scipy would make every `asperf --help` slow.
"""
