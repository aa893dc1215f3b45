"""The verdict on sizes that should fit in a memory."""

import pytest

from pytest_asperf.analysis.capacity import Fit, MemoryCapacity
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.report.verdict_text import lab_note, line
from pytest_asperf.verdicts.memory import judge_fit

SHARED = MemoryCapacity(100 * 10**9, is_shared=True, basis="")


@pytest.mark.parametrize(("weights_gb", "outcome"), [(10, Outcome.PASS), (61, Outcome.FAIL)])
def test_a_fit_becomes_a_verdict_with_its_figures(weights_gb: int, outcome: Outcome) -> None:
    """The note names the comparison, and advises if it failed."""
    verdict = judge_fit(Fit(SHARED, weights_gb * 10**9, 0), Subject("m fits", "live"))
    assert verdict.outcome is outcome
    assert bool(verdict.advice) is (outcome is Outcome.FAIL)
    assert f"weights {weights_gb / 1.073741824:.3g} GiB of 55.9 GiB" in lab_note(verdict)
    assert "m fits weights below 60 % of memory" in line(verdict)
