"""The device that ran a model: several kinds of evidence, each a figure or unavailable.

A plan is Core ML's forecast. Energy on the device's rail, a GPU near idle and a time that is not
the GPU's show the actual device. Only the plan covers exactly one process and one model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias, cast

from pytest_asperf.analysis.combined_verdict import joined, part
from pytest_asperf.analysis.guards.arms import IDENTICAL
from pytest_asperf.analysis.limit_verdict import judge_within
from pytest_asperf.analysis.results import Differs, Every
from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.intervals import unpaired_change_interval
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.errors import Advice
from pytest_asperf.hardware.compute_plan import ComputePlan, Device
from pytest_asperf.hardware.meters.meter import Rail
from pytest_asperf.measure.energy import EnergyResult

#: By name of the evidence, weakest first; one that is unavailable has no figure.
Ladder: TypeAlias = "Mapping[str, Verdict]"

#: Power of a working device above the idle machine. Published figures of the Neural Engine are 1.5
#: W at work, and 0.02 W if another device did the work.
AT_WORK_W: Final = 0.1
#: Largest power of a GPU that does none of the work: for one model, 0.2 W during the Neural
#: Engine's work and 62 W at its own are published.
NEAR_IDLE_W: Final = 0.5
_SHOWN: Final = 3
_SUBJECT: Final = Subject(
    "", "live", if_failed="see the plan for other devices: asperf placement FILE"
)
_OPPOSITE: Final = {Outcome.PASS: Outcome.FAIL, Outcome.FAIL: Outcome.PASS}


def ladder(
    device: Device,
    planned: Verdict | None = None,
    observed: EnergyResult | None = None,
    gpu_path: EnergyResult | None = None,
) -> Ladder:
    """The evidence that a model ran on a device."""
    if planned is None:
        planned = _unavailable("no Core ML model was given")
    rungs = {"plan": planned, f"{device} energy": _rail(device, observed, at_least=AT_WORK_W)}
    if device != "GPU":
        rungs["GPU energy"] = _rail("GPU", observed, at_most=NEAR_IDLE_W)
        rungs["latency"] = _latency(observed, gpu_path)
    return rungs


def placement_verdict(
    name: str, rungs: Ladder, device: Device, plan: ComputePlan | None, seen: EnergyResult | None
) -> Verdict:
    """True if a model is planned on a device, or ran on it where its run was observed.

    A statement about a plan needs the plan. One about a run needs the plan if there is one, energy
    on the rail and a GPU near idle; and the latency if the GPU's was given.
    """
    ran = (*(seen.ran.rows() if seen else ()), *((("plan by", plan.made),) if plan else ()))
    verb = "ran" if seen else "is planned"
    subject = replace(_SUBJECT, name=f"{name} {verb} on {device}", ran=ran)
    counted = {
        rung: bool(v.figures or "energy" in rung) if seen else rung == "plan"
        for rung, v in rungs.items()
    }
    verdict = joined(
        [(rung, v) for rung, v in rungs.items() if counted[rung]],
        subject,
        Every(
            of="evidence",
            further=tuple(part(rung, v) for rung, v in rungs.items() if not counted[rung]),
            operations=len(plan.operations) if plan and not seen else None,
        ),
    )
    if not seen and verdict.outcome is Outcome.INCONCLUSIVE:
        advice = Advice("assert less: the plan leaves this cost open")
        verdict = replace(verdict, advice=(advice,))
    if plan is None:
        return verdict
    others = plan.elsewhere(device)[:_SHOWN]
    texts = [f"{op} {percent_text(cost)} ({on or 'no device'})" for op, on, cost in others]
    details = (f"not on {device}: {', '.join(texts)}",) if texts else ()
    return guarded(replace(verdict, details=details), plan.guard_findings)


def _rail(device: Device, observed: EnergyResult | None, **limits: float) -> Verdict:
    """True if a rail's power above the idle machine's is that of work, or of none."""
    rail = cast("Rail", device.lower())
    if observed is None:
        return _unavailable("observed=energy(…) was not given")
    if rail not in observed.rails:
        return _unavailable(observed.why_unmeasured(rail))
    return judge_within(observed.watts(rail, net=True), _SUBJECT, **limits)


def _latency(observed: EnergyResult | None, gpu_path: EnergyResult | None) -> Verdict:
    """True if the time per token differs from the GPU's."""
    if observed is None or gpu_path is None:
        return _unavailable("unlike=energy(…) was not given")
    change = unpaired_change_interval(gpu_path.token_s, observed.token_s)
    same = judge_within(change, _SUBJECT, at_least=-IDENTICAL, at_most=IDENTICAL)
    outcome = _OPPOSITE.get(same.outcome, same.outcome)
    (figure,) = same.figures
    figures = (replace(figure, at_least=None, at_most=None),)
    unlike = Differs(share=IDENTICAL, device="GPU")
    return replace(same, outcome=outcome, result=unlike, figures=figures)


def _unavailable(reason: str) -> Verdict:
    """The result of a quantization without a figure, if one is needed."""
    advice = Advice("make it measurable (asperf doctor), or assert on the plan alone")
    problem = f"unavailable: {reason}"
    return _SUBJECT.verdict(Outcome.INCONCLUSIVE, None, problem=problem, advice=(advice,))
