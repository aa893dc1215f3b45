"""The verdict of a busy host on runs that were not paired."""

import pytest

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.limit_verdict import judge_within
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.verdicts.readings import GuardedRates, vetted, vetted_order

RATE = Estimate(100.0, 99.0, 101.0, 10, method="made up", unit="tok/s")
RUNS = [99.0, 99.5, 100.0, 100.5, 101.0]
BUSY = guards.host_busy(1.0, 2)


@pytest.mark.parametrize(
    ("at_least", "at_most", "lost_share", "outcome"),
    [
        (90.0, None, 0.5, Outcome.PASS),  # a quiet host is faster still
        (150.0, None, 0.5, Outcome.INVALID),  # a quiet host may reach it
        (150.0, None, 0.3, Outcome.FAIL),
        (None, 120.0, 0.5, Outcome.INVALID),  # and here it may exceed it
        (None, 250.0, 0.5, Outcome.PASS),
        (None, 90.0, 0.5, Outcome.FAIL),
    ],
)
def test_a_busy_host_voids_what_it_may_have_changed(
    at_least: float | None, at_most: float | None, lost_share: float, outcome: Outcome
) -> None:
    """A limit within a quiet host's range is not judged; others are, with a note."""
    assert BUSY is not None
    verdict = judge_within(RATE, Subject("tg", "live"), at_least=at_least, at_most=at_most)
    vetting = vetted(verdict, GuardedRates(RUNS, (BUSY,), lost_share), (at_least, at_most))
    assert vetting.outcome is outcome
    assert any(finding.guard == "host-busy" for finding in vetting.guards)


def test_times_are_shorter_on_a_quiet_host() -> None:
    """A run that is too slow by less than others' use is not judged; a fast enough one is."""
    assert BUSY is not None
    for at_most, outcome in ((90.0, Outcome.INVALID), (110.0, Outcome.PASS), (40.0, Outcome.FAIL)):
        verdict = judge_within(RATE, Subject("ttft", "live"), at_most=at_most)
        times = GuardedRates(RUNS, (BUSY,), 0.5, are_times=True)
        assert vetted(verdict, times, (at_most,)).outcome is outcome


def test_an_order_is_judged_on_a_busy_host() -> None:
    """Its runs alternate, so all of them are disturbed alike."""
    assert BUSY is not None
    verdict = judge_within(RATE, Subject("order", "live"), at_least=1.0)
    series = [GuardedRates(RUNS, (BUSY,), 0.9), GuardedRates([r + 1 for r in RUNS], (BUSY,), 0.9)]
    assert vetted_order(verdict, series).outcome is Outcome.PASS
