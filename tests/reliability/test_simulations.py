"""Simulations of gates drive the code of real ones; `benchmarks/bench_processes.py` has rates."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.measure import ab_speed

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not part of the sdist")
def test_a_simulated_gate_is_judged_by_the_code_of_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that is 20 % slower FAILs, and equal ones PASS."""
    monkeypatch.syspath_prepend(FOLDER)
    simulated = importlib.import_module("bench_processes")
    monkeypatch.setattr(ab_speed, "time_pairs", simulated.timed)
    judged = simulated.gate(simulated.Condition(slower=0.2), 1, np.random.default_rng(1))
    slow, *equal = (pairs.test.outcome for pairs in judged)
    assert slow is Decision.FAIL
    assert set(equal) == {Decision.PASS}
