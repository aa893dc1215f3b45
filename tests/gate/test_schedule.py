"""The sharing of one budget by the checks of a gate, on a clock that is set."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import CellResult, GateCell, Outlook
from pytest_asperf.gate.schedule import Schedule, Turns, outlook_text
from pytest_asperf.measure.ab_speed import Budget

REF = ModelRef(ModelSpec("m"))
CELLS = [GateCell(REF, Workload("tg", n)) for n in range(1, 9)]


@dataclass
class Clock:
    """Seconds that a test sets."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def _run(needs_s: list[float], max_seconds: float) -> tuple[dict[GateCell, float], list[GateCell]]:
    """Decide each check after so many seconds; the seconds of each, and the order of visits."""
    clock = Clock()
    cells = CELLS[: len(needs_s)]
    schedule = Schedule([Turns([cell]) for cell in cells], max_seconds, clock=clock)
    left = dict(zip(cells, needs_s, strict=True))
    got = dict.fromkeys(cells, 0.0)
    order = []
    while (turn := schedule.next()) is not None:
        group, share_s, most_s = turn
        (cell,) = group.cells
        order.append(cell)
        took_s = left[cell] if left[cell] <= most_s else share_s
        clock.now_s += took_s
        got[cell] += took_s
        left[cell] -= took_s
        outlook = Outlook(5, "pairs", 5.0, round(left[cell])) if left[cell] > 1e-9 else None
        schedule.put_back(group, [CellResult(cell, got[cell], outlook=outlook)])
    assert clock.now_s <= max_seconds + 1e-6
    return got, order


def test_what_decided_cells_leave_over_goes_to_the_undecided_one() -> None:
    """A check that needs most of the budget gets it, in a second visit."""
    got, order = _run([80.0, 5.0, 5.0, 5.0], 100.0)
    assert list(got.values()) == pytest.approx([80.0, 5.0, 5.0, 5.0])
    assert order == [CELLS[0], CELLS[1], CELLS[2], CELLS[3], CELLS[0]]


def test_a_visit_that_promises_a_verdict_takes_up_to_three_quarters() -> None:
    """If there is too little time for all, the first checks are decided instead of none."""
    got, order = _run([70.0, 20.0, 40.0, 40.0], 100.0)
    assert order[:2] == CELLS[:2]
    assert [got[cell] for cell in CELLS[:2]] == pytest.approx([70.0, 20.0])


def test_what_can_be_decided_soonest_comes_first() -> None:
    """A hopeless check keeps no other from its verdict."""
    got, order = _run([1000.0, 50.0, 1.0], 90.0)
    assert got[CELLS[1]] == pytest.approx(50.0)
    assert order[3] == CELLS[1]


@given(st.lists(st.floats(0.1, 200.0), min_size=1, max_size=8), st.floats(4.0, 300.0))
def test_every_cell_is_visited_and_the_budget_is_kept(needs: list[float], budget: float) -> None:
    """For any needs, each check is visited before any comes again, and none is for long."""
    got, order = _run(needs, budget)
    assert len(set(order[: len(needs)])) == len(needs)
    if sum(needs) <= budget - 3.0 * len(needs):
        assert got == pytest.approx(dict(zip(CELLS, needs, strict=False)))


def test_time_left_becomes_exact() -> None:
    """It is the budget without results, then the mean, and at last the pairs' own forecast."""
    clock = Clock()
    schedule = Schedule([Turns([cell]) for cell in CELLS[:3]], 100.0, clock=clock)
    turn = schedule.next()
    assert schedule.status() == ("0/3 decided", 100)
    assert turn is not None
    clock.now_s = 10.0
    schedule.put_back(turn[0], [CellResult(CELLS[0], 10.0)])
    turn = schedule.next()
    assert schedule.status() == ("1/3 decided", 20)
    assert turn is not None
    clock.now_s = 15.0
    assert schedule.status() == ("1/3 decided", 15)
    outlook = Outlook(5, "pairs", 2.5, 4)
    schedule.put_back(turn[0], [CellResult(CELLS[1], 5.0, outlook=outlook)])
    schedule.next()
    assert schedule.status() == ("1/3 decided", 12)


def test_known_costs_are_an_estimate_from_the_start() -> None:
    """The machine's noise is used before anything was measured."""
    known = dict.fromkeys(CELLS[:2], 7.0)
    schedule = Schedule([Turns(CELLS[:2])], 100.0, known, clock=Clock())
    schedule.next()
    assert schedule.status() == ("0/2 decided", 14)


def test_cells_that_cannot_be_measured_together_are_measured_alone() -> None:
    """They come at once, before other groups."""
    schedule = Schedule([Turns(CELLS[:2]), Turns(CELLS[2:3])], 90.0, clock=Clock())
    turn = schedule.next()
    assert turn is not None
    schedule.split(turn[0])
    order = [turn[0].cells for _ in range(3) if (turn := schedule.next())]
    assert order == [[CELLS[0]], [CELLS[1]], [CELLS[2]]]


def test_a_budget_that_is_too_small_is_told_after_the_first_round() -> None:
    """The remark names the budget that would do."""
    clock = Clock()
    schedule = Schedule([Turns([cell]) for cell in CELLS[:2]], 30.0, clock=clock)
    told = []
    for cell, needs in zip(CELLS[:2], (30, 10), strict=True):
        turn = schedule.next()
        assert turn is not None
        clock.now_s += 5.0
        outlook = Outlook(5, "pairs", 5.0, needs)
        schedule.put_back(turn[0], [CellResult(cell, 5.0, outlook=outlook)])
        told.append(schedule.shortfall())
    assert told[0] == ""
    assert "about 40 s more would decide those that can be, and 20 s are left" in told[1]
    assert "max_seconds = 50" in told[1]


@pytest.mark.parametrize(
    ("outlook", "told"),
    [
        (Outlook(5, "pairs", 5.0, 10, 0.02), ""),
        (Outlook(5, "pairs", 5.0, None, 0.02), "no verdict is in sight yet"),
        (Outlook(5, "pairs", 0.5, 100, 0.1), "about 105 pairs would, and 60 are allowed"),
        (Outlook(5, "pairs", 50.0, 9, 0.02), "about 90 s more would, and 30 s are left"),
        (Outlook(5, "pairs", 50.0, 9, 0.05), "at a tolerance of 8.23 %"),
        (Outlook(4, "chunks", 40.0, 36), "about 360 s more would"),
        (Outlook(0, "pairs", 0.0, None), ""),
        (None, ""),
    ],
)
def test_what_the_budget_cannot_decide_is_told(outlook: Outlook | None, told: str) -> None:
    """The remark names the missing part, and the tolerance that could be decided."""
    schedule, budget = Schedule([], 30.0, clock=Clock()), Budget(0.05, 60, 30.0, seed=1)
    text = outlook_text(CellResult(CELLS[0], 1.0, outlook=outlook), schedule, budget)
    assert told in text
    assert bool(text) == bool(told)
