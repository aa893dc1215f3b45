"""The evidence for a model's device: saved plans, and samples in powermetrics' form."""

from pathlib import Path

import pytest

from pytest_asperf.analysis.limit_verdict import judge_limit
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.hardware.compute_plan import ComputePlan, Device, parse_plan
from pytest_asperf.measure.energy import EnergyResult
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text, claim_text, lab_note
from pytest_asperf.verdicts.placement import ladder, placement_verdict
from tests.power_samples import energy

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"
IDLE = {"cpu_mw": 350.0, "gpu_mw": 25.0, "ane_mw": 0.0}
#: Published of one prefill of an M2 Ultra: by ANE-LM, by CoreML under ALL, and by MLX.
ON_ANE = {"cpu_mw": 3770.0, "gpu_mw": 220.0, "ane_mw": 1580.0}
ON_GPU = {"cpu_mw": 2350.0, "gpu_mw": 62_050.0, "ane_mw": 0.0}
HYBRID = {"cpu_mw": 9500.0, "gpu_mw": 11_400.0, "ane_mw": 24.0}
#: s for a token.
SLOW, FAST, LIKE_FAST = (0.0421, 0.0423, 0.0420), (23e-5, 24e-5, 23e-5), (24e-5, 23e-5, 23e-5)


def _plan(name: str = "prefill_on_ane") -> ComputePlan:
    text = (RECORDED / f"{name}.json").read_text().replace("\n", "")
    return parse_plan(text, where=name)


def _judged(
    observed: EnergyResult | None,
    plan: ComputePlan | None = None,
    gpu_path: EnergyResult | None = None,
    device: Device = "ANE",
    at_least: float = 0.9,
) -> Verdict:
    subject = Subject("", "live")
    planned = judge_limit(plan.share(device), ">=", at_least, subject) if plan else None
    rungs = ladder(device, planned, observed, gpu_path)
    return placement_verdict("m", rungs, device, plan, observed)


def _proof(verdict: Verdict) -> dict[str, str]:
    told = (detail.partition(": ") for detail in in_words(verdict).details)
    return {name: text for name, _, text in told}


@pytest.mark.parametrize(("at_least", "outcome"), [(0.9, Outcome.PASS), (0.95, Outcome.FAIL)])
def test_a_plan_by_itself(at_least: float, outcome: Outcome) -> None:
    """Judged by its share; the actual device is unavailable, each piece with its reason."""
    verdict = _judged(None, _plan(), at_least=at_least)
    assert verdict.outcome is outcome
    assert claim_text(verdict) == f"m is planned on ANE at least {at_least:.0%}".replace("%", " %")
    proof = _proof(verdict)
    assert proof["ANE energy"] == "unavailable: observed=energy(…) was not given"
    assert proof["latency"] == "unavailable: unlike=energy(…) was not given"
    assert verdict.details[-1].startswith("not on ANE: ios17.linear 4.97 % (CPU), ios18.gather")


def test_a_plan_that_leaves_its_cost_open_decides_nothing() -> None:
    """Between the bounds there is no verdict, and no number of repetitions changes that."""
    text = (RECORDED / "two_functions.json").read_text().replace("\n", "")
    plan = parse_plan(text, where="m", function="decode")
    verdict = _judged(None, plan, at_least=0.6)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert advice_text(verdict.advice) == "assert less: the plan leaves this cost open"
    assert "62 % [50, 70]" in in_words(verdict).measured
    assert "bounds: cost that the plan gives to no device" in lab_note(verdict)


def test_work_on_the_neural_engine_is_shown_by_every_rung() -> None:
    """Its rail draws 1.6 W above idle, the GPU 0.2 W, and a token is 180 times as slow."""
    observed, gpu = energy(ON_ANE, IDLE, SLOW), energy(ON_GPU, IDLE, FAST)
    verdict = _judged(observed, _plan(), gpu)
    assert verdict.outcome is Outcome.PASS
    assert claim_text(verdict) == "m ran on ANE by every line of evidence"
    proof = _proof(verdict)
    assert proof["plan"] == "PASS, 93.84 %, wanted at least 90 %"
    assert proof["ANE energy"].startswith("PASS, 1.59")
    assert proof["GPU energy"].startswith("PASS, 0.19")
    assert proof["latency"].endswith("wanted more than 5 % from the GPU's")
    assert _judged(observed).outcome is Outcome.PASS  # no plan, and no GPU to compare with


@pytest.mark.parametrize(
    ("powers", "token_s", "failing"),
    [
        (HYBRID, SLOW, ["ANE energy", "GPU energy"]),
        (ON_ANE | {"gpu_mw": 9000.0}, SLOW, ["GPU energy"]),
        (ON_ANE, LIKE_FAST, ["latency"]),
    ],
    ids=["planned there and run by the GPU", "both at work", "as fast as the GPU"],
)
def test_a_plan_that_was_not_followed_fails(
    powers: dict[str, float], token_s: tuple[float, ...], failing: list[str]
) -> None:
    """For any plan, each piece of evidence can refute that it ran there."""
    gpu = energy(ON_GPU, IDLE, FAST)
    verdict = _judged(energy(powers, IDLE, token_s), _plan(), gpu)
    proof = _proof(verdict)
    assert verdict.outcome is Outcome.FAIL
    assert [name for name, text in proof.items() if text.startswith("FAIL")] == failing


def test_a_rail_that_stands_still_is_unavailable_and_no_zero() -> None:
    """On some systems the counter reads 0 at work: that neither shows nor refutes anything."""
    verdict = _judged(energy(ON_ANE | {"ane_mw": 0.0}, IDLE, SLOW), _plan())
    assert verdict.outcome is Outcome.INCONCLUSIVE
    reason = "unavailable: ANE (powermetrics) did not move: idle, or dead"
    assert _proof(verdict)["ANE energy"] == reason
    assert reason in in_words(verdict).measured
    assert "asperf doctor" in advice_text(verdict.advice)


def test_a_compiler_that_refused_the_model_is_invalid() -> None:
    """Core ML loads it all the same, and its plan is not the run."""
    text = (RECORDED / "prefill_on_ane.json").read_text().replace("\n", "")
    plan = parse_plan(text, "E5RT: ANECCompile() FAILED: error -14", where="m")
    verdict = _judged(None, plan)
    assert verdict.outcome is Outcome.INVALID
    assert "ANECCompile() FAILED" in in_words(verdict).measured


def test_work_on_the_gpu_has_no_rung_that_wants_it_idle() -> None:
    """The rail of the device itself counts."""
    verdict = _judged(energy(ON_GPU, IDLE, FAST), device="GPU")
    assert verdict.outcome is Outcome.PASS
    assert [name for name in _proof(verdict) if "energy" in name] == ["GPU energy"]
