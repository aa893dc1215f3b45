"""The expected cost of a gate on this machine, from the noise of its calibrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import number_text, percent_text
from pytest_asperf.analysis.stats.pairs_needed import pairs_deciding
from pytest_asperf.config.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.noise import Calibration


@dataclass(frozen=True, slots=True)
class CellCost:
    """The expected cost of a timed check.

    Attributes:
        pairs: of equal builds, at most as many as are allowed.
        known: the calibration that this rests on.
        is_own: whether that was of the same workload.
    """

    pairs: int
    known: Calibration
    is_own: bool

    @property
    def seconds(self) -> float:
        """Seconds of its pairs."""
        return self.pairs * (self.known.pair_s or 0.0)


def expected_costs(
    cells: Iterable[GateCell], calibrations: Sequence[Calibration], budget: Budget
) -> dict[GateCell, CellCost]:
    """The expected cost of each timed check, as far as this machine's noise is known.

    Args:
        cells: of the gate.
        calibrations: those of this machine, the latest last.
        budget: names the accepted slowdown, and how many pairs are allowed.
    """
    usable = [c for c in calibrations if c.pair_s and budget.is_gate]
    timed = {c: c.workload for c in cells if isinstance(c.workload, Workload)} if usable else {}
    costs = {}
    for cell, workload in timed.items():
        known = max(usable, key=lambda c: _likeness(c, cell, workload))  # used at once
        pairs = max(budget.min_pairs, pairs_deciding(known.spread, budget.tolerance))
        is_own = known.workload == workload.name
        costs[cell] = CellCost(min(budget.max_pairs, pairs), known, is_own)
    return costs


def _likeness(known: Calibration, cell: GateCell, workload: Workload) -> tuple[bool, bool, bool]:
    is_kind = known.workload.startswith(workload.kind)
    return known.workload == workload.name, known.model == cell.ref.label, is_kind


def cost_text(cells: Sequence[GateCell], costs: Mapping[GateCell, CellCost]) -> str:
    """The costs in a sentence; empty where nothing is known.

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
    alike = f", {n_like} of them taken to be like it" if n_like else ""
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
