"""How long a GPU is warmed up."""

import pytest

from pytest_asperf.engine_process import RawRun
from pytest_asperf.measure.throughput import run_until_steady
from tests.engine_facts import context


@pytest.mark.parametrize(
    ("elapsed_ms", "n_runs"),
    [
        ((153.98, 28.47, 15.10, 15.54), 4),  # pp512 after idle, as an H200 ran it
        ((17.21, 20.23, 14.51, 14.57), 4),  # after idle with kernels loaded
        ((15.0, 15.0), 2),
        ((480.0,), 1),
        (tuple(200 * 0.9**i for i in range(10)), 10),
    ],
)
def test_runs_until_two_are_alike(elapsed_ms: tuple[float, ...], n_runs: int) -> None:
    """It ends after two alike, a long one, or ten; the load's first is returned."""
    runs = [RawRun(512, round(ms * 1e6), (), context(), 0) for ms in (*elapsed_ms, 1.0)]
    left = iter(runs)
    assert run_until_steady(lambda: next(left)) is runs[0]
    assert list(left) == runs[n_runs:]
