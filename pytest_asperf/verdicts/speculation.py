"""From a measurement of speculation, or of the texts of two models, to the verdicts on it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_asperf.analysis.facts import ComparedVariants
from pytest_asperf.analysis.guards import Guard, Voids
from pytest_asperf.analysis.guards.outputs import NEAR_TIE, first_divergence
from pytest_asperf.analysis.limit_verdict import judge_below, judge_limits
from pytest_asperf.analysis.results import (
    Answer,
    GainAnswer,
    GainRule,
    JudgedFigure,
    Limits,
    Parting,
    RatioDirection,
    SameTexts,
    SameTokens,
    SpeculationGain,
    TextParting,
    VariantValues,
    WithinLimits,
)
from pytest_asperf.analysis.speculation_model import (
    acceptance_text,
    best_text,
    break_even_text,
    split_text,
)
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded, judge_invalid
from pytest_asperf.errors import Advice, advised, shown
from pytest_asperf.measure.speculation_result import Divergence, SpeculationResult
from pytest_asperf.measure.texts import Outputs
from pytest_asperf.verdicts.paired import AGAIN, ran_rows

#: Bound on a FAIL of a sampler that has the target's distribution.
_ALPHA: Final = 0.05
#: Distance of distributions of places that is as good as none.
PLACES_TOLERANCE: Final = 0.05
#: Tokens that are sampled: enough that a distance of none is shown to be below the tolerance.
PLACES: Final = 6000

#: By the side of the rule's ratio and the answer there.
_OUTCOMES: Final = {
    ("above", "gain"): Outcome.PASS,
    ("above", "no gain"): Outcome.FAIL,
    ("below", "gain"): Outcome.FAIL,
    ("below", "no gain"): Outcome.PASS,
}

_BUDGET: Final = Advice("measure more pairs", "max_pairs", "max_seconds")


def gain_verdict(
    result: SpeculationResult,
    subject: Subject,
    *,
    when_ratio: float,
    at_least: float,
    only: RatioDirection | None,
) -> Verdict:
    """Judge the assertion that speculation gains `at_least` from a speed ratio on, not below.

    With `only`, one direction of the ratio is gated.
    """
    directions: list[RatioDirection] = ["above", "below"]
    if result.ratio.shown_at_least(when_ratio):
        directions = ["above"]
    elif result.ratio.shown_below(when_ratio):
        directions = ["below"]
    answers = tuple(
        GainAnswer(one, _answer(result.gain, one, at_least, only)) for one in directions
    )
    outcomes = {_outcome(answer) for answer in answers}
    outcome = outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE
    rule = GainRule(when_ratio=when_ratio, at_least=at_least, only=only, answers=answers)
    verdict = subject.verdict(
        outcome,
        _gain(result, rule),
        figures=(
            JudgedFigure("gain", result.gain, at_least if directions == ["above"] else None),
            JudgedFigure("speed ratio", result.ratio),
        ),
        advice=_advice(outcome, directions, result),
        details=_details(result),
    )
    return guarded(verdict, result.guard_findings)


def stopped_verdict(result: SpeculationResult, subject: Subject) -> Verdict:
    """The finished pairs of a measurement that was stopped from outside."""
    verdict = subject.verdict(
        Outcome.INCONCLUSIVE,
        _gain(result),
        figures=(JudgedFigure("gain", result.gain), JudgedFigure("speed ratio", result.ratio)),
        advice=(AGAIN,),
        details=_details(result),
    )
    return guarded(verdict, result.guard_findings)


def compared_gain_verdict(result: SpeculationResult, subject: Subject, limits: Limits) -> Verdict:
    """The verdict on the gain against limits, for any speed ratio."""
    verdict = judge_limits(result.gain, limits, subject)
    within = WithinLimits(limits=limits, variants=_rates(result))
    verdict = replace(verdict, result=within, details=_details(result))
    return guarded(verdict, result.guard_findings)


def lossless_verdict(result: SpeculationResult, subject: Subject) -> Verdict:
    """Judge the assertion that greedy output with a draft is the target's own, up to near-ties."""
    # The assertion itself judges changes of the output.
    others = [f for f in result.guard_findings if f.voids is not Voids.ALL_BUT_OUTPUT]
    n_prompts = len({run.prompt for run in result.runs})
    n_pairs = len(result.pairs)
    verdict = output_verdict(result.divergences, result.categories, n_prompts, subject, n_pairs)
    return guarded(verdict, others)


def output_verdict(
    divergences: Sequence[Divergence],
    categories: Sequence[str],
    n_prompts: int,
    subject: Subject,
    n_pairs: int | None = None,
) -> Verdict:
    """Judge the assertion by the places at which outputs diverge."""
    parted = tuple(
        Parting(
            prompt=one.prompt,
            category=categories[one.prompt],
            position=one.position,
            tokens=one.tokens,
            batched=one.margin.batched,
            single=one.margin.single,
            is_tie=one.guard_finding is None,
        )
        for one in divergences
    )
    differs = not all(one.is_tie for one in parted)
    return subject.verdict(
        Outcome.FAIL if differs else Outcome.PASS,
        SameTokens(n_prompts=n_prompts, parted=parted, near_tie=NEAR_TIE, n_pairs=n_pairs),
        advice=(advised(Guard.DIVERGENT_OUTPUT.remedy),) if differs else (),
    )


def sampled_verdict(places: Sequence[float], subject: Subject) -> Verdict:
    """Judge the assertion that sampled output has the target's distribution.

    Places of tokens (`sample_places`) in the target's own distribution are independent and uniform
    if it has. The distance of their distribution from that is known up to sqrt(ln(2 / alpha) / 2n)
    (Dvoretzky, Kiefer and Wolfowitz, Ann. Math. Statist. 27, 1956; the constant is Massart's, Ann.
    Probab. 18, 1990).
    """
    n = len(places)
    ordered = sorted(places)
    distance = max(max((i + 1) / n - u, u - i / n) for i, u in enumerate(ordered))
    half = math.sqrt(math.log(2 / _ALPHA) / (2 * n))
    estimate = Estimate(
        distance,
        max(0.0, distance - half),
        distance + half,
        n,
        method="Kolmogorov's distance from uniform, Dvoretzky-Kiefer-Wolfowitz bound",
        unit="",
        counted="sampled tokens",
        confidence=1 - _ALPHA,
    )
    verdict = judge_below(estimate, PLACES_TOLERANCE, subject)
    if distance > half:
        advice = "the output is not the target's: look at how drafted tokens are accepted"
        return replace(verdict, outcome=Outcome.FAIL, advice=(Advice(advice),))
    return verdict


def _answer(
    gain: Estimate, side: RatioDirection, at_least: float, only: RatioDirection | None
) -> Answer:
    """The answer if the ratio is on this side."""
    if only not in {None, side}:
        return "not gated"
    if not gain.has_interval:
        return "too few pairs"
    if gain.shown_above(at_least):
        return "gain"
    is_none = side == "below" or gain.shown_at_most(at_least)
    return "no gain" if is_none else "not shown"


def _outcome(one: GainAnswer) -> Outcome:
    if one.answer == "not gated":
        return Outcome.PASS
    return _OUTCOMES.get((one.direction, one.answer), Outcome.INCONCLUSIVE)


def _gain(result: SpeculationResult, rule: GainRule | None = None) -> SpeculationGain:
    even = result.break_even_ratio
    return SpeculationGain(
        rule=rule,
        rates=_rates(result),
        break_even=even if even < math.inf else None,
        mean_length=result.counts.mean_length,
        verifying=result.verifying,
    )


def _rates(result: SpeculationResult) -> VariantValues:
    return VariantValues(values=(result.alone_rate, result.speculative_rate), unit="tok/s")


def _advice(
    outcome: Outcome, directions: Sequence[RatioDirection], result: SpeculationResult
) -> tuple[Advice, ...]:
    if outcome is Outcome.PASS:
        return ()
    if outcome is Outcome.INCONCLUSIVE:
        return (_BUDGET,)
    best, gain = result.best_k
    text = (
        f"by prediction k={best} is the best for this pair, with {100 * gain:+.1f} %; otherwise "
        "use a draft that is faster or accepted more often, or decode without one"
    )
    if directions == ["below"]:
        even = result.break_even_ratio, result.counts.mean_length, result.verifying
        text = f"use {break_even_text(*even)} instead of the rule of thumb, for this pair here"
    return (Advice(text),)


def _details(result: SpeculationResult) -> tuple[str, ...]:
    k, counts = result.pairing.k, result.counts
    shares = acceptance_text(counts.acceptance_by_category, counts.acceptance_by_position)
    covers = "loads and runs" if result.reloads else "runs of one load each, not of loads"
    rolled = ", ".join(f"{name} {context.rollback}" for name, context in result.contexts.items())
    accepted = (
        f"acceptance {100 * counts.acceptance:.1f} % ({shares}), "
        f"{result.counts.mean_length:.2f} tokens a round"
    )
    predicted = (
        f"predicted {result.predicted_gain.text()} from acceptance, c = {result.c.point:.3f} and "
        f"C({k + 1}) = {result.verify[k + 1].point:.2f}; by prediction {best_text(*result.best_k)}"
    )
    how = (
        f"pairs of {len(result.categories)} prompts, {result.pairing.n_tokens} tokens each; covers "
        f"the variance of {covers}; random order, seed {result.seed}"
    )
    return accepted, predicted, f"time: {split_text(result.time_split)}; rollback by {rolled}", how


#: Differing texts that a verdict keeps, and characters of each from where they part.
_KEPT: Final = 3
_SHOWN: Final = 40


def same_output_verdict(outputs: Outputs, names: tuple[str, str], n_tokens: int) -> Verdict:
    """The verdict on two models' outputs; they are named baseline first.

    INVALID if the baseline does not repeat itself, or generates nothing.
    """
    subject = Subject(
        f"output of {names[1]} against {names[0]}",
        "live",
        ran_rows(names, outputs.ran),
        if_failed="the KV handoff loses something, or the two compute in other precision: compare "
        "them with the same build, and look at the first difference",
    )
    if not any(one for one, _ in outputs.texts):
        problem = f"{names[0]} generated no text"
        return judge_invalid(
            subject, [problem], advice="see what its `text` matches", result=SameTexts()
        )
    if outputs.again != outputs.texts[0][0]:
        n, (first, again) = _parting(outputs.texts[0][0], outputs.again)
        found = f"from character {n} on {shown(first, 2 * _SHOWN)} and {shown(again, 2 * _SHOWN)}"
        problem = f"{names[0]} does not repeat itself: {found}"
        return judge_invalid(
            subject, [problem], advice="have it sample greedily", result=SameTexts()
        )
    parted = [(n, *pair) for n, pair in enumerate(outputs.texts, 1) if pair[0] != pair[1]]
    return subject.verdict(
        Outcome.FAIL if parted else Outcome.PASS,
        SameTexts(
            n_prompts=len(outputs.texts),
            n_same=len(outputs.texts) - len(parted),
            n_tokens=n_tokens,
            parted=tuple(TextParting(n, *_parting(one, other)) for n, one, other in parted[:_KEPT]),
        ),
        advice=(Advice(subject.if_failed),) if parted else (),
        compared=ComparedVariants(ran=(outputs.ran[0].facts(), outputs.ran[1].facts())),
    )


def _parting(one: str, other: str) -> tuple[int, tuple[str, str]]:
    """The character at which two texts diverge, from 1, and how each continues."""
    n = first_divergence(list(map(ord, one)), list(map(ord, other))) or 0
    return n + 1, (one[n : n + _SHOWN], other[n : n + _SHOWN])
