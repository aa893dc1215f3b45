"""The forecast by which a visit to timed checks goes on or ends."""

import pytest

from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.judge import _pairs_left
from pytest_asperf.measure.ab_speed import WorkloadPairs, _will_decide
from pytest_asperf.measure.paired_runner import Pair


def _pairs(n: int, *, min_pairs: int = 12) -> WorkloadPairs:
    """Equal pairs of 2 s each, and of 20 s more for the examination."""
    test = TotalTimeTest(0.05, min_pairs=min_pairs, max_pairs=120)
    pairs = WorkloadPairs(Workload("pp", 512), test, [], elapsed_s=2.0 * n + 20.0, examined_s=20.0)
    for number in range(n):
        pairs.add(Pair((100,), (100,), candidate_first=number % 2 == 0))
    return pairs


@pytest.mark.parametrize(("left_s", "goes_on"), [(20.9, False), (21.0, True)])
def test_the_examination_is_in_no_further_pair(left_s: float, *, goes_on: bool) -> None:
    """Seven further pairs of 2 s, and a start of 1 s for each, are 21 s."""
    assert _will_decide([_pairs(5)], left_s, 1.0) is goes_on


def test_a_visit_without_a_pair_begins_one() -> None:
    """There is nothing to forecast from."""
    assert _will_decide([_pairs(0), _pairs(5)], 1.0, 1.0)


def test_the_outlook_of_a_check_is_without_the_examination_too() -> None:
    """It names the seconds of seven pairs."""
    outlook = _pairs_left(_pairs(5))
    assert outlook is not None
    assert (outlook.spent_s, outlook.unit_s) == (30.0, 2.0)
    assert outlook.expected_s == pytest.approx(2.0 * (outlook.units_left or 0))
