"""Predictions from sizes and bandwidth, before a run."""
