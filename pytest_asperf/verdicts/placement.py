"""On which device a model ran: a ladder of evidence, each rung a figure or unavailable.

A plan says what Core ML anticipates. Energy on the device's rail, a GPU near idle and a time that
is not the GPU's say what ran, and of that only the plan is of one process and one model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from pytest_asperf.analysis.combined_verdict import joined
from pytest_asperf.analysis.guards.arms import IDENTICAL
from pytest_asperf.analysis.limit_verdict import judge_within
from pytest_asperf.analysis.stats.estimate import Estimate, percent_text
from pytest_asperf.analysis.stats.intervals import unpaired_change_interval
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.verdict import Accepted
    from pytest_asperf.hardware.compute_plan import ComputePlan, Device
    from pytest_asperf.hardware.meters.meter import Rail
    from pytest_asperf.measure.energy import EnergyResult

#: Above the idle machine's power, what a device takes that works. Published figures of the Neural
#: Engine are 1.5 W at work, and 0.02 W where the work went elsewhere.
AT_WORK_W: Final = 0.1
#: The same, what a GPU takes at most that does none of the work: 0.2 W beside the Neural Engine and
#: 62 W at work are published for one model.
NEAR_IDLE_W: Final = 0.5
_SHOWN: Final = 3
_REMEDY: Final = "look at which operations are planned elsewhere: asperf placement FILE"


@dataclass(frozen=True, slots=True)
class Rung:
    """One kind of evidence.

    Attributes:
        name: of the evidence.
        verdict: on its figure; None where that is unavailable.
        reason: why it is.
    """

    name: str
    verdict: Verdict | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """The figure with what it was held to, or that it is unavailable and why."""
        if self.verdict is None:
            return f"unavailable: {self.reason}"
        return f"{self.verdict.outcome}, {self.verdict.measured}, wanted {self.verdict.threshold}"


def ladder(
    device: Device,
    plan: ComputePlan | None = None,
    limits: Accepted = (None, None),
    observed: EnergyResult | None = None,
    gpu_path: EnergyResult | None = None,
) -> tuple[Rung, ...]:
    """The evidence that a model ran on a device, weakest first.

    Args:
        device: which.
        plan: Core ML's, None where there is none to read.
        limits: of the plan's share, that are claimed.
        observed: the energy of a phase in which the model ran.
        gpu_path: the same of the same work done by the GPU.
    """
    planned = Rung("plan", reason="no Core ML model was given")
    if plan is not None:
        estimate, (low, high) = plan.share(device), limits
        planned = Rung("plan", judge_within(estimate, _subject(device), at_least=low, at_most=high))
    rails = [_rail(device, observed, at_least=AT_WORK_W)]
    if device != "GPU":
        rails += [_rail("GPU", observed, at_most=NEAR_IDLE_W), _latency(observed, gpu_path)]
    return (planned, *rails)


def placement_verdict(
    name: str,
    rungs: Sequence[Rung],
    device: Device,
    plan: ComputePlan | None,
    observed: EnergyResult | None,
) -> Verdict:
    """Whether a model is planned on a device, or ran on it where its run was observed.

    A statement about a plan needs the plan. One about a run needs the plan if there is one, energy
    on the rail and a GPU near idle; and the latency if the GPU's was given.
    """
    ran = () if observed is None else observed.ran.rows()
    proof = ((rung.name, rung.text) for rung in rungs)
    made = (("made by", f"{plan.release}, units {plan.units}"),) if plan else ()
    verb = "is planned" if observed is None else "ran"
    subject = Subject(f"{name} {verb} on {device}", "live", (*ran, *made, *proof))
    subject = replace(subject, if_failed=_REMEDY)
    if observed is None:
        (verdict,) = (rung.verdict for rung in rungs if rung.name == "plan" and rung.verdict)
        verdict = replace(verdict, subject=subject)
        if verdict.outcome is Outcome.INCONCLUSIVE:
            verdict = replace(verdict, advice="claim less: the plan leaves this cost open")
    else:
        needed = [r for r in rungs if r.verdict or r.name not in {"plan", "latency"}]
        verdicts = [(rung.name, rung.verdict or _open(rung, subject)) for rung in needed]
        figures = tuple((label, one.figures[0][1]) for label, one in verdicts if one.figures)
        verdict = joined(verdicts, figures, subject, "by every rung of the evidence")
    if plan is None:
        return verdict
    basis = f"{len(plan.operations)} operations" if observed is None else ""
    verdict = replace(verdict, basis=basis, details=(*verdict.details, *_elsewhere(plan, device)))
    return guarded(verdict, plan.guard_findings, remedy="convert the model so that it compiles")


def _rail(device: Device, observed: EnergyResult | None, **limits: float) -> Rung:
    """Whether a rail's power above the idle machine's is that of work, or of none."""
    name, rail = f"{device} energy", cast("Rail", device.lower())
    if observed is None:
        return Rung(name, reason="observed=energy(…) was not given")
    if rail not in observed.rails:
        return Rung(name, reason=observed.why_unmeasured(rail))
    watts = observed.watts(rail, net=True)
    return Rung(name, judge_within(watts, _subject(device), **limits))


def _latency(observed: EnergyResult | None, gpu_path: EnergyResult | None) -> Rung:
    """Whether a token takes another time than on the GPU."""
    if observed is None or gpu_path is None:
        return Rung("latency", reason="gpu_path=energy(…) was not given")
    change = unpaired_change_interval(gpu_path.token_s, observed.token_s)
    same = judge_within(change, _subject("GPU"), at_least=-IDENTICAL, at_most=IDENTICAL)
    opposite = {Outcome.PASS: Outcome.FAIL, Outcome.FAIL: Outcome.PASS}
    wanted = f"more than {percent_text(IDENTICAL)} from the GPU's"
    outcome = opposite.get(same.outcome, same.outcome)
    return Rung("latency", replace(same, outcome=outcome, threshold=wanted, accepted=()))


def _subject(device: str) -> Subject:
    return Subject(device, "live", if_failed=_REMEDY)


def _open(rung: Rung, subject: Subject) -> Verdict:
    """The verdict on evidence that is needed and unavailable."""
    remedy = "make it measurable (asperf doctor), or claim the plan alone"
    return Verdict(Outcome.INCONCLUSIVE, subject, "shown", rung.text, (), remedy)


def _elsewhere(plan: ComputePlan, device: Device) -> tuple[str, ...]:
    """What costs most of that which is planned on another device."""
    found = plan.elsewhere(device)[:_SHOWN]
    texts = (f"{name} {percent_text(cost)} ({on or 'no device'})" for name, on, cost in found)
    return (f"not on {device}: {', '.join(texts)}",) if found else ()


def plan_text(plan: ComputePlan, device: Device) -> tuple[Estimate, str]:
    """A device's share of a plan, and how many operations that are."""
    return plan.share(device), f"{plan.counts[device]} of {len(plan.operations)} operations"
