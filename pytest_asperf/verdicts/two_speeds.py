"""Notes on the pairs of a gate: what its verdicts show, total time, and an arm of two speeds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.total_time import TotalTimeTest

if TYPE_CHECKING:
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.measure.ab_speed import WorkloadPairs


def zone_text(test: PairedTest) -> str:
    """What PASS and FAIL of a gate show, in words."""
    floor, limit = percent_text(test.floor), percent_text(test.tolerance)
    return f"PASS excludes +{limit}; FAIL does not, and shows more than +{floor}"


def time_text(change: Estimate, tolerance: float, time: str = "time") -> str:
    """A change of a time with its direction: ``+62 % slower [50, 74]``."""
    figure, interval = change.brief_parts(apart_from=(tolerance,))
    is_more, tail = change.shown_above(0), ""
    if time == "energy":
        what = "more energy" if is_more else "energy"
    elif is_more:
        what, tail = "slower", " in all" if time != "time" else ""
    else:
        what, tail = time, ", faster" if change.shown_below(0) else ""
    return " ".join(filter(None, (figure, what, interval))) + tail


def total_time_notes(pairs: WorkloadPairs) -> tuple[str, ...]:
    """The ratio of the total time, and whether an arm runs at two speeds, one remark each."""
    test = pairs.test
    if not isinstance(test, TotalTimeTest) or not pairs.pairs:
        return ()
    if percentile := pairs.workload.percentile:
        counted = "tokens" if pairs.workload.generates else "requests"
        return (f"of each side's {counted} in a pair the p{percentile} is compared",)
    if all(len(pair.baseline_costs) == 1 for pair in pairs.pairs):
        return ("one run of each side a pair: only their mean shows a minority of slow runs",)
    # The one that is judged stands in the verdict's own line.
    label, beside = ("total time", test.total)
    if test.decisive is test.total:
        label, beside = ("the typical turn", test)
    other = f"{label}: {time_text(beside.estimate, test.tolerance)}"
    if not test.parts:
        return (other,)
    arm, ratio = _uneven_arm(pairs)
    return (
        other,
        f"two speeds: the {arm}'s slowest quarter of runs take {ratio:.2f} times its median",
    )


def _uneven_arm(pairs: WorkloadPairs) -> tuple[str, float]:
    """The arm whose slow runs are slowest against its median, and by how much."""
    ratios = []
    for runs in pairs.arms_costs:
        slowest = sorted(runs)[-max(1, len(runs) // 4) :]
        ratios.append(statistics.median(slowest) / statistics.median(runs))
    return max(zip(("baseline", "candidate"), ratios, strict=True), key=lambda arm: arm[1])
