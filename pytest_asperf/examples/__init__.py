"""Tests to copy, which run as they are: `pytest --pyargs pytest_asperf.examples`."""
