"""A user's test file with the assertion of a published figure: read by type checkers, not run."""

# ruff: noqa: D103  # as a user writes it

from pytest_asperf import Throughput, assert_as_published


def test_rate(throughput: Throughput) -> None:
    assert_as_published(throughput("tg128"), "atom-paper/three-machines/m2ultra-76/tg")
