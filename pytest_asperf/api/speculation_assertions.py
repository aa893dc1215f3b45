"""Claims about speculation: what it gains, and whether the output stays the target's own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, get_args

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.analysis.speculation_model import RULE_RATIO
from pytest_asperf.api.measurement_context import require_kind
from pytest_asperf.api.model import Model
from pytest_asperf.api.quantity import settle
from pytest_asperf.api.speculation import PromptSpeculation, Speculation
from pytest_asperf.errors import ConfigError, listing, shown, suggest
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.measure.texts import OutputsExperiment
from pytest_asperf.verdicts.outputs import same_output_verdict
from pytest_asperf.verdicts.speculation import (
    PLACES,
    RatioSide,
    gain_verdict,
    lossless_verdict,
    output_verdict,
    sampled_verdict,
    stopped_verdict,
)

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Subject, Verdict
    from pytest_asperf.measure.speculation_result import SpeculationResult

#: What two models generate of the shipped prompts.
_TOKENS: Final = 64
_PROMPTS: Final = 4


def assert_sd_gain(
    speculation: Speculation,
    *,
    when_ratio: float = RULE_RATIO,
    at_least: str | float = "0%",
    only: RatioSide | None = None,
) -> Verdict:
    """Assert that speculation gains from a speed ratio on, and does not gain below it.

    At or above the ratio: PASS if a gain is shown, FAIL if a gain is ruled out. Below it: PASS if
    no gain is shown, FAIL if one is. The verdict gives the measured break-even beside the ratio.

    Args:
        speculation: the fixture.
        when_ratio: speed ratio, TG of the draft over TG of the target, from which it should gain.
        at_least: the gain that must be exceeded to count as one, `"10%"` or a fraction.
        only: `"above"` or `"below"` to gate one side of the ratio; the other then passes.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: a limit is not usable.
        AsperfError: it could not be measured, or what was measured is broken.
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
    if only is not None and only not in get_args(RatioSide):
        raise ConfigError(
            f"assert_sd_gain: only={shown(only)}{suggest(only, get_args(RatioSide))}",
            why="it decides which side of the ratio is gated",
            remedy=f"use one of {listing(get_args(RatioSide))}, or leave it out for both",
        )
    result, subject = _measured(speculation, "SD gain", limit)
    verdict = gain_verdict(result, subject, when_ratio=when_ratio, at_least=limit, only=only)
    return settle(verdict, speculation.measurement.record)


def assert_lossless(
    speculation: Speculation | PromptSpeculation | Model, *, than: str | None = None
) -> Verdict:
    """Assert that output is the target's own with a draft, or a pipeline's the same as another's.

    Greedy: where outputs first differ, both tokens are within a near-tie of the likeliest under the
    target's own logits, for the batch that judged them and for a single step. Sampled: tokens have
    the target's distribution, as far as some thousands of them show. The `model` fixture and
    another model generate 64 tokens after each of four shipped prompts, and the texts must be the
    same; both must sample greedily.

    Args:
        speculation: the fixture, or one prompt of it, `speculation.on("def area(")`; or the
            `model` fixture, on the engine `command`.
        than: with `model`, the model that it is compared with, by its spec.

    Raises:
        VerdictError: the verdict is not a PASS; INVALID if the other model does not repeat itself.
        ConfigError: nothing that can be judged, or one model twice.
        AsperfError: it could not be measured, or what was measured is broken.
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
            why="that shows nothing",
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
