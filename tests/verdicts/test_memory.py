"""The verdict on sizes that should fit in a memory."""

from dataclasses import replace

import pytest

from pytest_asperf.analysis.capacity import Fit, MemoryCapacity
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.report.verdict_text import lab_note, line
from pytest_asperf.verdicts.memory import judge_fit

GB = 10**9
SHARED = MemoryCapacity(100 * GB, is_shared=True, basis="")


@pytest.mark.parametrize(("weights_gb", "outcome"), [(10, Outcome.PASS), (61, Outcome.FAIL)])
def test_a_fit_becomes_a_verdict_with_its_figures(weights_gb: int, outcome: Outcome) -> None:
    """The note names the comparison, and advises if it failed."""
    verdict = judge_fit(Fit(SHARED, weights_gb * 10**9, 0), Subject("m fits", "live"))
    assert verdict.outcome is outcome
    assert bool(verdict.advice) is (outcome is Outcome.FAIL)
    assert f"weights {weights_gb / 1.073741824:.3g} GiB of 55.9 GiB" in lab_note(verdict)
    assert "m fits weights below 60 % of memory" in line(verdict)


@pytest.mark.parametrize(
    ("limit_gb", "kv_gb", "outcome"),
    [
        (None, 1, Outcome.PASS),
        (None, 25, Outcome.INCONCLUSIVE),
        (None, 60, Outcome.FAIL),
        (80, 25, Outcome.PASS),
        (70, 25, Outcome.FAIL),
    ],
)
def test_a_mac_whose_working_set_is_unknown(
    limit_gb: int | None, kv_gb: int, outcome: Outcome
) -> None:
    """Its GPU has two thirds of the memory for certain."""
    limit = None if limit_gb is None else limit_gb * GB
    mac = replace(SHARED, gpu_limit_bytes=limit, has_working_set=True)
    verdict = judge_fit(Fit(mac, 50 * GB, kv_gb * GB), Subject("m fits", "live"))
    assert verdict.outcome is outcome
    is_unknown = "recommendedMaxWorkingSetSize" in lab_note(verdict)
    assert is_unknown is (outcome is Outcome.INCONCLUSIVE)
