"""The common part of verdicts on energy: their counters, and the agreement of these."""

from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding, Voids
from pytest_asperf.hardware.meters.meter import CounterWindow
from pytest_asperf.hardware.watch import Watched
from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
from pytest_asperf.measure.metered import PhaseEnergy

#: Rails that only the engine uses, as far as is known.
_OWN: Final = frozenset({"gpu", "ane"})


def energy_notes(phases: Sequence[PhaseEnergy]) -> tuple[str, ...]:
    """The counters that moved, their cadence, and the unmeasured rails."""
    if not phases:
        return ()
    return (
        *map(_counter_text, _by_counter(phases)),
        *(f"not measured: {missing}" for missing in phases[-1].unmeasured),
        *(f.found for f in coverage_findings(phases, on_gpu=False)),
    )


def coverage_findings(phases: Sequence[PhaseEnergy], *, on_gpu: bool) -> tuple[GuardFinding, ...]:
    """The reasons why the measured rails are not the machine's energy."""
    finding = guards.rail_coverage(phases[-1].rails, on_gpu=on_gpu)
    return (finding,) if finding else ()


def busy_host(rails: Collection[str], watched: Watched) -> tuple[GuardFinding, ...]:
    """The finding that voids an assertion on rails, as they have other processes' energy too.

    Pairs share it too, but an equal addition to both draws their ratio towards 1.
    """
    busy = (f for f in watched.guard_findings if f.voids is Voids.LOAD_SENSITIVE)
    return () if _OWN.issuperset(rails) else tuple(busy)


def energy_findings(pairs: WorkloadPairs, result: ABResult) -> tuple[GuardFinding, ...]:
    """The findings that void a comparison of energies; none of a comparison of times."""
    if not (pairs.workload.metered and result.phases):
        return ()
    rails = result.phases[-1].rails
    return (*busy_host(rails, result.surroundings.watched), *disagreements(result.phases))


def disagreements(phases: Sequence[PhaseEnergy]) -> tuple[GuardFinding, ...]:
    """The counters that the separate power meter contradicts, by the median over the windows."""
    findings = []
    for windows in _by_counter(phases):
        checked = [(w.watts, w.power_w) for w in windows if w.power_w is not None]
        if checked:
            counted, beside = (median(values) for values in zip(*checked, strict=True))
            findings.append(guards.counter_disagrees(windows[0].name, counted, beside))
    return tuple(finding for finding in findings if finding)


def _by_counter(phases: Sequence[PhaseEnergy]) -> Iterator[list[CounterWindow]]:
    names = dict.fromkeys(w.name for phase in phases for w in phase.windows)
    for name in names:
        yield [w for phase in phases for w in phase.windows if w.name == name]


def _counter_text(windows: list[CounterWindow]) -> str:
    period_ms = 1e3 * median(w.period_s for w in windows)
    seconds = median(w.seconds for w in windows)
    checked = [w.watts / w.power_w for w in windows if w.power_w]
    beside = (
        f", {median(checked):.3g} times the power that the other counter shows" if checked else ""
    )
    return (
        f"{windows[0].name}: an update every {period_ms:.3g} ms, {len(windows)} windows of "
        f"{seconds:.2g} s from update to update{beside}"
    )
