"""Which cells of a gate take turns, and the effect by which gates are compared."""

from __future__ import annotations

import pytest

from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.gate.judge import _taking_turns, _total_change
from pytest_asperf.measure.ab_speed import WorkloadPairs
from pytest_asperf.measure.paired_runner import Pair

A, B = (ModelRef(ModelSpec(name)) for name in "ab")
PP, TG = Workload("pp", 512), Workload("tg", 128)


def test_times_of_one_model_take_turns_and_checks_stay_alone() -> None:
    """Cells of other models, PPL and speculation are measured by themselves, none twice."""
    a_pp, a_tg, b_tg = GateCell(A, PP), GateCell(A, TG), GateCell(B, TG)
    a_ppl, a_sd = GateCell(A, GateCheck.PPL), GateCell(A, GateCheck.SPECULATION)
    groups = _taking_turns([a_pp, b_tg, a_ppl, a_tg, a_sd])
    assert groups == [[a_pp, a_tg], [b_tg], [a_ppl], [a_sd]]


@pytest.mark.parametrize("slow_runs_ns", [(120, 120, 120, 120), (100, 100, 160, 160)])
def test_gates_are_compared_by_total_time(slow_runs_ns: tuple[int, ...]) -> None:
    """Whether the typical turn decides or the total time does: one quantity in all gates."""
    pairs = WorkloadPairs(TG, TotalTimeTest(min_pairs=20), [])
    assert _total_change(pairs) is None
    for number in range(20):
        pairs.add(Pair((100, 100, 100, 100), slow_runs_ns, candidate_first=number % 2 == 0))
    effect = _total_change(pairs)
    assert effect is not None
    assert effect.point == pytest.approx(sum(slow_runs_ns) / 400 - 1, abs=0.005)


def test_a_depth_is_filled_once() -> None:
    """Decoding at depth has processes of its own, where its context stays."""
    deep = Workload("tg", 128, 1024)
    cells = [GateCell(A, PP), GateCell(A, deep), GateCell(A, TG)]
    assert _taking_turns(cells) == [[cells[0], cells[2]], [cells[1]]]
