"""The schedule of a gate's checks: one budget, spent where it decides.

Every check is visited once, with an equal share of the remaining time, or up to three quarters of
it if that promises a verdict: if there is too little time for all, some checks are decided instead
of none. Time that decided checks did not use goes to the undecided ones, in further rounds, until
all are decided or the budget is spent.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pytest_asperf.analysis.stats.estimate import counted_text, number_text, percent_text
from pytest_asperf.analysis.stats.sequential import detectable_tolerance, pairs_deciding
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import Advice
from pytest_asperf.gate.cells import CellResult, GateCell
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.noise import Calibration

#: A further visit starts processes and loads models; less is not worth that.
_LEAST_VISIT_S: Final = 3.0
#: Share of the remaining time for a visit that promises a verdict while others wait.
_LARGEST_SHARE: Final = 0.75


@dataclass(slots=True)
class Turns:
    """Checks that are measured in rotation."""

    cells: list[GateCell]  #: the undecided checks
    visits: int = 0  #: how often they were measured
    earlier: object = None  #: the last visit's result
    #: of the undecided checks, as far as they were measured
    results: dict[GateCell, CellResult] = field(default_factory=dict)

    @property
    def expected_s(self) -> float | None:
        """Seconds that would decide them; None if there is no forecast for all."""
        outlooks = [r.outlook for r in self.results.values() if r.outlook is not None]
        known = [o.expected_s for o in outlooks if o.expected_s is not None]
        return sum(known) if outlooks and len(known) == len(outlooks) else None


class Schedule:
    """Shares one budget out.

    Args:
        groups: checks that are measured in rotation; the groups are visited one after the other.
        max_seconds: the budget of all.
        known_s: expected seconds of checks before they are measured, if there is a forecast.
        clock: gives seconds.
    """

    def __init__(
        self,
        groups: Iterable[Turns],
        max_seconds: float,
        known_s: Mapping[GateCell, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._round = deque(groups)
        self._n_cells = sum(len(group.cells) for group in self._round)
        self._visited: list[Turns] = []
        self._now: Turns | None = None
        self._known_s = known_s or {}
        self._taken_s: list[float] = []
        self._clock = clock
        self.max_seconds = max_seconds
        self.deadline = clock() + max_seconds
        self._ends = self.deadline

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.deadline - self._clock())

    @property
    def undecided(self) -> list[Turns]:
        """All groups with undecided checks."""
        return [*self._visited, *self._round]

    def next(self) -> tuple[Turns, float, float] | None:
        """The group that is measured next, for how long, and up to how long if that decides it.

        None if the budget is spent.
        """
        self._now = None
        if not self._round:
            # The check that can be decided soonest comes first, and one without a forecast last.
            by_need = sorted(
                self._visited, key=lambda one: (one.expected_s is None, one.expected_s or 0.0)
            )
            self._round, self._visited = deque(by_need), []
        least_s = _LEAST_VISIT_S if self._round and self._round[0].visits else 0.0
        if not self._round or self.left_s <= least_s:
            return None
        n_left = sum(len(group.cells) for group in self._round)
        self._now = group = self._round.popleft()
        self._ends = self._clock() + self._expected_s()
        share = len(group.cells) / n_left
        return group, self.left_s * share, self.left_s * max(share, _LARGEST_SHARE)

    def put_back(self, group: Turns, results: Iterable[CellResult]) -> None:
        """Store a group's results; undecided checks wait for the next round."""
        of_cells = {result.cell: result for result in results}
        decided = [result for result in of_cells.values() if result.outlook is None]
        self._taken_s += [result.elapsed_s for result in decided]
        group.cells = [cell for cell in group.cells if cell not in {r.cell for r in decided}]
        group.results = {cell: of_cells[cell] for cell in group.cells}
        group.visits += 1
        self._now = None
        if group.cells:
            self._visited.append(group)

    def split(self, group: Turns) -> None:
        """Measure a group's checks one by one instead, at once."""
        alone = [
            Turns(
                [cell],
                group.visits,
                group.earlier,
                {c: r for c, r in group.results.items() if c == cell},
            )
            for cell in group.cells
        ]
        self._now = None
        self._round.extendleft(reversed(alone))

    def status(self) -> tuple[str, float]:
        """The progress of a gate of several checks, and its forecast in seconds."""
        n_open = sum(len(group.cells) for group in (*self.undecided, *self._in_hand()))
        left_s = max(0.0, min(self._ends, self.deadline) - self._clock())
        n_cells = self._n_cells
        return f"{n_cells - n_open}/{n_cells} decided" if n_cells > 1 else "", left_s

    def shortfall(self) -> str:
        """The missing budget once every check was visited; empty if it suffices."""
        expected = [group.expected_s for group in self._visited]
        needed_s = sum(seconds for seconds in expected if seconds is not None)
        if self._round or needed_s <= self.left_s:
            return ""
        n_cells = sum(len(group.cells) for group in self._visited)
        budget_s = math.ceil(self.max_seconds - self.left_s + needed_s)
        advice = Advice(
            f"{n_cells} of {self._n_cells} checks are undecided: about {needed_s:.0f} s more would "
            f"decide those that can be, and {self.left_s:.0f} s are left",
            max_seconds=budget_s,
        )
        return str(advice)

    def _in_hand(self) -> list[Turns]:
        return [] if self._now is None else [self._now]

    def _expected_s(self) -> float:
        """Seconds until all are decided, by the measurements so far; at most the budget."""
        expected_s = 0.0
        for group in (*self.undecided, *self._in_hand()):
            of_group = group.expected_s if group.visits else self._unmeasured_s(group)
            if of_group is None:
                return self.left_s
            expected_s += of_group
        return min(expected_s, self.left_s)

    def _unmeasured_s(self, group: Turns) -> float | None:
        usual_s = sum(self._taken_s) / len(self._taken_s) if self._taken_s else None
        expected = [self._known_s.get(cell, usual_s) for cell in group.cells]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None


def outlook_text(result: CellResult, schedule: Schedule, budget: Budget) -> str:
    """The reason why the budget will not decide a check, empty if it will.

    Args:
        result: of an undecided check.
        schedule: has the remaining time.
        budget: has the accepted slowdown, and the number of pairs after which a check ends
            undecided.
    """
    outlook, left_s, max_pairs = result.outlook, schedule.left_s, budget.max_pairs
    if outlook is None or not outlook.n:
        return ""
    name = f"{result.cell.name} {result.cell.what}"
    seconds = outlook.expected_s
    if outlook.units_left is None or seconds is None:
        need = "no verdict is in sight yet"
    elif outlook.spread is not None and outlook.n + outlook.units_left > max_pairs:
        need = f"about {outlook.n + outlook.units_left} pairs would, and {max_pairs} are allowed"
    elif seconds > left_s:
        need = f"about {seconds:.0f} s more would, and {left_s:.0f} s are left of the budget"
    else:
        return ""
    could = ""
    if outlook.spread is not None:
        affordable = outlook.n + left_s / outlook.unit_s
        least = detectable_tolerance(outlook.spread, int(min(max_pairs, affordable)))
        if budget.is_gate and least > budget.tolerance:
            could = f"; equal builds could be decided at a tolerance of {percent_text(least)}"
    return f"{name} is not decided by {counted_text(outlook.n, outlook.counted)}: {need}{could}"


@dataclass(frozen=True, slots=True)
class CellCost:
    """The expected cost of a timed check."""

    pairs: int  #: of equal builds, at most as many as are allowed
    known: Calibration  #: the calibration behind this forecast
    is_own: bool  #: whether that was of the same workload

    @property
    def seconds(self) -> float:
        """Seconds of its pairs."""
        return self.pairs * self.known.pair_s


def expected_costs(
    cells: Iterable[GateCell], calibrations: Sequence[Calibration], budget: Budget
) -> dict[GateCell, CellCost]:
    """The expected cost of each timed check, by this machine's measured noise.

    Args:
        cells: of the gate.
        calibrations: those of this machine, the latest last.
        budget: names the accepted slowdown, and how many pairs are allowed.
    """
    if not (calibrations and budget.is_gate):
        return {}
    timed = {cell: cell.workload for cell in cells if isinstance(cell.workload, Workload)}
    costs = {}
    for cell, workload in timed.items():
        known = max(calibrations, key=lambda c: _likeness(c, cell, workload))  # used at once
        pairs = max(budget.min_pairs, pairs_deciding(known.spread, budget.tolerance))
        is_own = known.workload == workload.name
        costs[cell] = CellCost(min(budget.max_pairs, pairs), known, is_own)
    return costs


def _likeness(known: Calibration, cell: GateCell, workload: Workload) -> tuple[bool, bool, bool]:
    is_kind = known.workload.startswith(workload.kind)
    return known.workload == workload.name, known.model == cell.ref.label, is_kind


def cost_text(cells: Sequence[GateCell], costs: Mapping[GateCell, CellCost]) -> str:
    """The costs in a sentence; empty without a forecast.

    Args:
        cells: of the gate.
        costs: of those that are timed.
    """
    if not costs:
        return ""
    seconds = sum(cost.seconds for cost in costs.values())
    pairs = sum(cost.pairs for cost in costs.values()) / len(costs)
    known = {cost.known.workload: cost.known for cost in costs.values()}
    of = ", ".join(
        f"{name} {percent_text(c.spread)} of {c.measured_on}" for name, c in sorted(known.items())
    )
    n_like = sum(not cost.is_own for cost in costs.values())
    alike = f", {n_like} of them assumed to be like it" if n_like else ""
    n_checks = len(cells) - len(costs)
    checks = (
        f"{n_checks} check{'s' * (n_checks > 1)} that {'are' if n_checks > 1 else 'is'} not timed"
    )
    top = f"; {checks}, and loads, come on top" if n_checks else ""
    return (
        f"expected here of equal builds: about {seconds:.0f} s for {len(costs)} timed checks, "
        f"{pairs:.0f} pairs a check at {number_text(seconds / (pairs * len(costs)), 2)} s a pair, "
        f"by this machine's noise ({of}{alike}){top}"
    )
