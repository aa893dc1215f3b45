"""Functions that one comparison cannot replace: the order of rates or quantizations, and drafts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, get_args

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.combined_verdict import judge_monotonic, judge_pareto
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.analysis.results import RatioDirection
from pytest_asperf.analysis.speculation_model import RULE_RATIO
from pytest_asperf.analysis.stats.chunk_intervals import chunk_difference_interval, delta_ppl
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.intervals import (
    neighbour_estimates,
    paired_change_interval,
    shared_confidence,
    unpaired_change_interval,
)
from pytest_asperf.analysis.verdict import Subject, Verdict, guarded
from pytest_asperf.api.ladder import Ladder
from pytest_asperf.api.measurement_context import NoTruthValue, require_kind, unknown_word
from pytest_asperf.api.model import Model
from pytest_asperf.api.quantity import settle
from pytest_asperf.api.speculation import PromptSpeculation, Speculation
from pytest_asperf.api.throughput import Rate
from pytest_asperf.errors import ConfigError, listing, shown, suggest
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.measure.speculation_result import SpeculationResult
from pytest_asperf.measure.texts import OutputsExperiment
from pytest_asperf.measure.validity import twin_trips
from pytest_asperf.verdicts.readings import vetted_order
from pytest_asperf.verdicts.speculation import (
    PLACES,
    gain_verdict,
    lossless_verdict,
    output_verdict,
    same_output_verdict,
    sampled_verdict,
    stopped_verdict,
)

_RATES: Final = 'assert_monotonic([throughput("tg64"), throughput("tg64@d1024")])'
#: Quantities of a quant sweep by name; any workload's name means its rate.
_SCORES: Final = {"ppl": metrics.PPL, "kld": metrics.KLD, "size": metrics.SIZE}
Direction = Literal["rising", "falling"]


def assert_monotonic(
    series: Ladder | Sequence[Rate], quantity: str | None = None, *, direction: Direction = "rising"
) -> Verdict:
    """Assert that a quantity rises, or falls, from each quantization or rate to the next.

    Args:
        series: a quant sweep in its marker's order, or rates in the asserted order.
        quantity: of a quant sweep: `ppl`, `kld`, `size` or a workload such as `tg128`.
        direction: `rising` or `falling` along the order.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantity, or fewer than two to compare.
        AsperfError: a quantization could not be measured.
    """
    __tracebackhide__ = True
    if direction not in {"rising", "falling"}:
        raise unknown_word("direction", str(direction), ("rising", "falling"))
    if isinstance(series, Ladder):
        labels, quantity = list(series.quants), quantity or "kld"
        _require_two(labels)
        differences = _ladder_differences(series, quantity)
        subject = _subject(series, quantity, [quantity])
        verdict = judge_monotonic(labels, differences, subject, direction=direction)
        findings = _scored_trips(series, [quantity])
        return settle(guarded(verdict, findings), series.measurement.record)
    given: object = series
    if isinstance(given, NoTruthValue):  # which has no members
        require_kind(given, Ladder, _RATES)
    rates = list(series)
    for rate in rates:
        require_kind(rate, Rate, _RATES)
    labels = [rate.name for rate in rates]
    _require_two(labels)
    found = [rate.find() for rate in rates]
    runs = [one.runs for one in found if one.runs]
    differences = neighbour_estimates([one.rates for one in runs], unpaired_change_interval)
    subject = Subject("rate", "live", found[0].subject.ran)
    verdict = judge_monotonic(labels, differences, subject, direction=direction)
    details = tuple(
        f"{label} from {one.estimate.basis}" for label, one in zip(labels, found, strict=True)
    )
    return settle(vetted_order(replace(verdict, details=details), runs), rates[0].record)


def assert_pareto_optimal(
    ladder: Ladder, quant: str, objectives: Sequence[str] = ("size", "tg128", "ppl")
) -> Verdict:
    """Assert that no other quantization is as good in every objective and better in one.

    Args:
        ladder: the quantizations.
        quant: the quantization that the assertion is about.
        objectives: of `ppl`, `kld`, `size` and workloads such as `tg128`.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantization or objective, or nothing to compare with.
        AsperfError: a quantization could not be measured.
    """
    __tracebackhide__ = True
    require_kind(ladder, Ladder, 'assert_pareto_optimal(ladder, "Q4_K_M")')
    ladder[quant]  # an error if there is none
    _require_two(ladder.quants)
    if not objectives:
        raise ConfigError(
            "no objective to compare quantizations by",
            why="with none, every quantization is as good as any other",
            remedy="name some of ppl, kld, size and workloads such as tg128",
        )
    others = [other for other in ladder.quants if other != quant]
    confidence = shared_confidence(DECISION_CONFIDENCE, len(others) * len(objectives))
    differences = {
        other: [_difference(ladder, o, quant, other, confidence) for o in objectives]
        for other in others
    }
    chosen = [metric_of(objective) for objective in objectives]
    subject = _subject(ladder, f"{quant} of", objectives)
    verdict = judge_pareto(differences, chosen, subject)
    guard_findings = _scored_trips(ladder, objectives)
    return settle(guarded(verdict, guard_findings), ladder.measurement.record)


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise ConfigError(
            f"nothing to compare: {len(labels)} of at least two",
            remedy="name more quantizations in the marker, or give more rates",
        )


def metric_of(quantity: str) -> metrics.Metric:
    """The metric of a sweep's quantity: `ppl`, `kld`, `size` or a workload."""
    if quantity in _SCORES:
        return _SCORES[quantity]
    if quantity[:2] in {"tg", "pp"}:
        return metrics.TG if quantity.startswith("tg") else metrics.PP
    raise unknown_word("quantity", quantity, (*_SCORES, "tg128", "pp512"))


def _is_scored(quantity: str) -> bool:
    return metric_of(quantity) in {metrics.PPL, metrics.KLD}


def _subject(ladder: Ladder, what: str, quantities: Sequence[str]) -> Subject:
    """The subject of an assertion about the whole sweep, with these quantities' run records."""
    first = ladder.quants[0]
    timed = [name for name in quantities if name not in _SCORES]
    if any(map(_is_scored, quantities)):
        ran = ladder[first].scored.result().rows()
    elif timed:
        ran = ladder.timed(timed[0])[ladder.rungs[first]].ran.rows()
    else:
        found = [ladder[name].size.find() for name in ladder.quants]
        ran = tuple(row for one in found for row in one.subject.ran)
    return Subject(f"{what} {ladder.title}", "live", ran)


def _scored_trips(ladder: Ladder, quantities: Sequence[str]) -> tuple[GuardFinding, ...]:
    if not any(map(_is_scored, quantities)):
        return ()
    rungs = [ladder[name].scored for name in ladder.quants]
    own = (finding for rung in rungs for finding in rung.guard_findings())
    return (*own, *twin_trips([rung.result() for rung in rungs]))


def _ladder_differences(ladder: Ladder, quantity: str) -> tuple[Estimate, ...]:
    confidence = shared_confidence(DECISION_CONFIDENCE, len(ladder.quants) - 1)
    neighbours = pairwise(ladder.quants)
    return tuple(_difference(ladder, quantity, a, b, confidence) for a, b in neighbours)


def _difference(
    ladder: Ladder, quantity: str, level: str, other: str, confidence: float
) -> Estimate:
    """By how much `other` exceeds `level` in a quantity, from paired observations."""
    metric = metric_of(quantity)
    refs = ladder.rungs[level], ladder.rungs[other]
    if metric is metrics.SIZE:
        sizes = [ladder.measurement.runner.locate(ref).size_bytes for ref in refs]
        return Estimate.exact((sizes[1] - sizes[0]) / 1e6, metrics.SIZE.unit)
    if metric in {metrics.TG, metrics.PP}:
        timed = ladder.timed(quantity)
        return paired_change_interval(timed[refs[0]].rates, timed[refs[1]].rates, confidence)
    a, b = (ladder[name].scored.result().chunks for name in (level, other))
    if metric is metrics.PPL:
        return delta_ppl([c.nll for c in a], [c.nll for c in b], confidence)
    return chunk_difference_interval(
        [c.kld for c in a], [c.kld for c in b], confidence, unit=metrics.KLD.unit
    )


#: The outputs of two models for the shipped prompts.
_TOKENS: Final = 64
_PROMPTS: Final = 4


def assert_sd_gain(
    speculation: Speculation,
    *,
    when_ratio: float = RULE_RATIO,
    at_least: str | float = "0%",
    only: RatioDirection | None = None,
) -> Verdict:
    """Assert that speculation gains from a speed ratio on, and does not gain below it.

    At or above the ratio: PASS if a gain is shown, FAIL if it is excluded. Below it: PASS if no
    gain is shown, FAIL if one is. The verdict gives the ratio and the measured break-even.

    Args:
        speculation: the fixture.
        when_ratio: speed ratio, TG of the draft over TG of the target, from which it should gain.
        at_least: the gain that must be exceeded to count as one, `"10%"` or a fraction.
        only: `"above"` or `"below"` to gate one direction of the ratio; the other direction then
            passes.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: a limit is not usable.
        AsperfError: it could not be measured, or the measurement is broken.
    """
    __tracebackhide__ = True
    limit = parse_percent(at_least, where="assert_sd_gain: at_least", negative=True)
    given: object = when_ratio
    usable = isinstance(given, int | float) and not isinstance(given, bool)
    if not usable or not 0 < when_ratio < math.inf:
        raise ConfigError(
            f"assert_sd_gain: when_ratio: {shown(when_ratio)} is not a speed ratio",
            why="the assertion is about pairs from that ratio on",
            remedy="write a number above 0, such as 2.5",
        )
    if only is not None and only not in get_args(RatioDirection):
        raise ConfigError(
            f"assert_sd_gain: only={shown(only)}{suggest(only, get_args(RatioDirection))}",
            why="it decides which direction of the ratio is gated",
            remedy=f"use one of {listing(get_args(RatioDirection))}, or leave it out for both",
        )
    result, subject = _measured(speculation, "SD gain", limit)
    verdict = gain_verdict(result, subject, when_ratio=when_ratio, at_least=limit, only=only)
    return settle(verdict, speculation.measurement.record)


def assert_lossless(
    speculation: Speculation | PromptSpeculation | Model, *, than: str | None = None
) -> Verdict:
    """Assert that output with a draft is the target's own, or that two pipelines' are equal.

    Greedy: at the first difference both tokens must be within a near-tie of the likeliest under the
    target's own logits, for the batch that judged them and for a single step. Sampled: tokens must
    have the target's distribution, tested on some thousands of them. With `than`, the `model`
    fixture and another model generate 64 tokens after each of four shipped prompts, and the texts
    must be equal; both must sample greedily.

    Args:
        speculation: the fixture, or one prompt of it, `speculation.on("def area(")`; or the
            `model` fixture, on the engine `command`.
        than: with `model`, the model to compare with, by its spec.

    Raises:
        VerdictError: the verdict is not a PASS; INVALID if the other model does not repeat itself.
        ConfigError: nothing that can be judged, or one model twice.
        AsperfError: it could not be measured, or the measurement is broken.
    """
    __tracebackhide__ = True
    kinds = (Speculation, PromptSpeculation, Model)
    require_kind(speculation, kinds, "assert_lossless(speculation)")
    if isinstance(speculation, Model):
        return settle(_same_output(speculation, than), speculation.variant.measurement.record)
    if isinstance(speculation, PromptSpeculation):
        done, pair = speculation.output(), speculation.speculation
        parted = (done.divergence,) if done.divergence else ()
        verdict = output_verdict(parted, ("given",), 1, pair.subject("greedy output", done))
        return settle(verdict, pair.measurement.record)
    if speculation.pairing.temperature:
        subject = speculation.subject("distance from the target's distribution,")
        return settle(
            sampled_verdict(speculation.places(PLACES), subject), speculation.measurement.record
        )
    result, subject = _measured(speculation, "greedy output")
    return settle(lossless_verdict(result, subject), speculation.measurement.record)


def _same_output(model: Model, than: str | None) -> Verdict:
    """The verdict on the texts that two models generate."""
    own = model.variant
    other = own if than is None else own.other(than)
    if own.side() == other.side():
        raise ConfigError(
            f"assert_lossless: {model.label} is compared with itself",
            remedy='name another model, as in assert_lossless(model, than="@mlx_alone")',
        )
    prompts = tuple(text for _, text in read_prompts(None))[:_PROMPTS]
    base, candidate = other.side(), own.side()
    outputs = base.runner.compare((base, candidate), OutputsExperiment(prompts, _TOKENS))
    return same_output_verdict(outputs, (other.title, own.title), _TOKENS)


def _measured(
    speculation: Speculation, what: str, limit: float = 0.0
) -> tuple[SpeculationResult, Subject]:
    """The result and its subject, for an assertion; if it was stopped, its pairs are noted."""
    __tracebackhide__ = True
    require_kind(speculation, Speculation, Speculation.example)
    result = speculation.against(limit)
    subject = speculation.subject(what, result)
    if result.interrupted:
        settle(stopped_verdict(result, subject), speculation.measurement.record, stopped=True)
    return result, subject
