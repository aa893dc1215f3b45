"""What a gate's note says: what its verdicts show, total time, and an arm of two speeds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.total_time import TotalTimeTest

if TYPE_CHECKING:
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.measure.ab_speed import WorkloadPairs


def zone_text(test: PairedTest) -> str:
    """Return what PASS and FAIL of a gate show, in words."""
    floor, limit = percent_text(test.floor), percent_text(test.tolerance)
    return (
        f"PASS: +{limit} excluded; FAIL: not, and more than +{floor} shown; either may come between"
    )


def total_time_notes(workload_pairs: WorkloadPairs) -> tuple[str, ...]:
    """Return the total time's ratio, and whether an arm runs at two speeds, one remark a line."""
    test = workload_pairs.test
    if not isinstance(test, TotalTimeTest) or not workload_pairs.pairs:
        return ()
    if all(len(pair.baseline_runs_ns) == 1 for pair in workload_pairs.pairs):
        return ("one run of each side a pair: only their mean shows a minority of slow runs",)
    # The one that is judged stands in the verdict's own line.
    label, beside = ("total time", test.total)
    if test.decisive is test.total:
        label, beside = ("the typical turn", test)
    told = f"{label} {beside.estimate.as_ratio().text()}"
    if not test.parts:
        return (told,)
    arm, ratio = _uneven_arm(workload_pairs)
    return (
        told,
        f"two speeds: the {arm}'s slowest quarter of runs take {ratio:.2f} times its median",
    )


def _uneven_arm(workload_pairs: WorkloadPairs) -> tuple[str, float]:
    """Return the side whose slow runs are slowest against its median, and by how much."""
    ratios = []
    for runs in workload_pairs.arms_ns:
        slowest = sorted(runs)[-max(1, len(runs) // 4) :]
        ratios.append(statistics.median(slowest) / statistics.median(runs))
    return max(zip(("baseline", "candidate"), ratios, strict=True), key=lambda side: side[1])
