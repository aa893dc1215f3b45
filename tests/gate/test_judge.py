"""The checks of a gate that alternate, and the effect by which gates are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.gate.judge import _chunks_left, _taking_turns, _total_change
from pytest_asperf.measure.ab_speed import WorkloadPairs
from pytest_asperf.measure.paired_runner import Pair

A, B = (ModelRef(ModelSpec(name)) for name in "ab")
PP, TG = Workload("pp", 512), Workload("tg", 128)


def test_times_of_one_model_take_turns_and_checks_stay_alone() -> None:
    """Checks of other models, PPL and speculation are measured by themselves, none twice."""
    a_pp, a_tg, b_tg = GateCell(A, PP), GateCell(A, TG), GateCell(B, TG)
    a_ppl, a_sd = GateCell(A, GateCheck.PPL), GateCell(A, GateCheck.SPECULATION)
    groups = _taking_turns([a_pp, b_tg, a_ppl, a_tg, a_sd])
    assert groups == [[a_pp, a_tg], [b_tg], [a_ppl], [a_sd]]


@pytest.mark.parametrize("slow_runs_ns", [(120, 120, 120, 120), (100, 100, 160, 160)])
def test_gates_are_compared_by_total_time(slow_runs_ns: tuple[int, ...]) -> None:
    """True if the median pair decides or the total time does: one quantity in all gates."""
    pairs = WorkloadPairs(TG, TotalTimeTest(min_pairs=20), [])
    assert _total_change(pairs) is None
    for number in range(20):
        pairs.add(Pair((100, 100, 100, 100), slow_runs_ns, candidate_first=number % 2 == 0))
    effect = _total_change(pairs)
    assert effect is not None
    assert effect.point == pytest.approx(sum(slow_runs_ns) / 400 - 1, abs=0.005)


@given(value=st.floats(-0.02, 0.02), n=st.integers(1, 39))
def test_chunks_are_foreseen_as_they_decide(value: float, n: int) -> None:
    """Chunks that go on as they began decide it after exactly the number in the outlook."""
    test = PairedPplTest(0.01, n_chunks_total=40)
    while test.n < n and test.outcome is None:
        test.update(value)
    outlook = _chunks_left(test, 2.0)
    assert (outlook is None) == (test.outcome is not None)
    for left in range(outlook.units_left or 0 if outlook else 0, 0, -1):
        assert test.expected_chunks_left == left
        test.update(value)
    assert test.outcome is not None
    assert test.expected_chunks_left == 0


def test_a_corpus_too_short_for_a_verdict_is_not_visited_again() -> None:
    """Once all of its chunks are scored, no further time decides anything."""
    test = PairedPplTest(0.01, n_chunks_total=4)
    for n in range(4):
        assert test.expected_chunks_left == 4 - n
        test.update(0.0)
    assert test.outcome is None
    assert _chunks_left(test, 2.0) is None


@pytest.mark.parametrize("spread", [0.001, 0.01])
def test_chunks_that_differ_are_foreseen_too(spread: float) -> None:
    """The outlook of chunks that alternate is right within a quarter."""
    test = PairedPplTest(0.01, n_chunks_total=229)
    assert test.expected_chunks_left == test.min_chunks
    foreseen = []
    while test.outcome is None:
        test.update(spread * (-1) ** test.n)
        foreseen.append(test.n + test.expected_chunks_left)
    assert foreseen[3:] == pytest.approx([test.n] * (test.n - 3), rel=0.25)


def test_timed_cells_of_a_model_share_processes() -> None:
    """A process is started once for all timed work of a pair of a model, at any depth."""
    deep = Workload("tg", 128, 1024)
    cells = [GateCell(A, PP), GateCell(A, GateCheck.PPL), GateCell(A, deep), GateCell(A, TG)]
    assert _taking_turns(cells) == [[cells[0], cells[2], cells[3]], [cells[1]]]
