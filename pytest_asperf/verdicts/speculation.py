"""From a measurement of speculation, or of the texts of two models, to the verdicts on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis.facts import ComparedSides
from pytest_asperf.analysis.guards import Guard, Voids
from pytest_asperf.analysis.guards.outputs import NEAR_TIE, first_divergence
from pytest_asperf.analysis.limit_verdict import Limits, judge_below, judge_limits, why_open
from pytest_asperf.analysis.speculation_model import (
    acceptance_text,
    best_text,
    break_even_text,
    split_text,
)
from pytest_asperf.analysis.stats.estimate import (
    CHANGE,
    Estimate,
    counted_text,
    limit_text,
    number_text,
)
from pytest_asperf.analysis.verdict import (
    JudgedFigure,
    Outcome,
    Subject,
    Verdict,
    guarded,
    judge_invalid,
)
from pytest_asperf.errors import Advice, shown
from pytest_asperf.verdicts.paired import ran_rows

if TYPE_CHECKING:
    from pytest_asperf.measure.speculation_result import Divergence, SpeculationResult
    from pytest_asperf.measure.texts import Outputs


RatioSide = Literal["above", "below"]

#: Bound on a FAIL of a sampler that has the target's distribution.
_ALPHA: Final = 0.05
#: Distance of distributions of places that is as good as none.
PLACES_TOLERANCE: Final = 0.05
#: Tokens that are sampled: enough that a distance of none is shown to be below the tolerance.
PLACES: Final = 6000

_ABOVE_GAINS: Final = (Outcome.PASS, "it gains where the rule predicts it")
_ABOVE_NONE: Final = (Outcome.FAIL, "no gain where the rule promises one")
_ABOVE_OPEN: Final = (Outcome.INCONCLUSIVE, "neither a gain nor its absence is shown")
_BELOW_GAINS: Final = (Outcome.FAIL, "a gain below the ratio: the rule is too strict here")
_BELOW_NONE: Final = (Outcome.PASS, "no gain is shown below the rule's ratio")

_BUDGET: Final = Advice("measure more pairs", "max_pairs", "max_seconds")


def gain_verdict(
    result: SpeculationResult,
    subject: Subject,
    *,
    when_ratio: float,
    at_least: float,
    only: RatioSide | None,
) -> Verdict:
    """Judge the assertion that speculation gains `at_least` from a speed ratio on, not below.

    With `only`, one direction of the ratio is gated.
    """
    sides: list[RatioSide] = ["above", "below"]
    if result.ratio.shown_at_least(when_ratio):
        sides = ["above"]
    elif result.ratio.shown_below(when_ratio):
        sides = ["below"]
    by_side = {side: _on_side(result.gain, side, at_least, only) for side in sides}
    outcomes = {outcome for outcome, _ in by_side.values()}
    outcome = outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE
    answer = " or ".join(dict.fromkeys(text for _, text in by_side.values()))
    gain = result.gain.text(apart_from=(at_least,))
    verdict = subject.verdict(
        outcome,
        threshold=_rule(when_ratio, at_least, only),
        measured=f"{answer}: gain {gain} at a ratio of {result.ratio.text()}, "
        f"{_break_even(result)}, compared with the rule's {when_ratio:g} x",
        figures=(
            JudgedFigure("gain", result.gain, at_least if sides == ["above"] else None),
            JudgedFigure("speed ratio", result.ratio),
        ),
        advice=_advice(outcome, sides, result),
        details=_details(result),
        brief=_rates(result, at_least),
        bound=f"> {limit_text(at_least, CHANGE)} from {number_text(when_ratio)}x",
        why=_why(sides, outcome, result),
    )
    return guarded(verdict, result.guard_findings)


def stopped_verdict(result: SpeculationResult, subject: Subject) -> Verdict:
    """The finished pairs of a measurement that was stopped from outside."""
    stopped = f"stopped after {counted_text(len(result.pairs), 'pairs')}"
    verdict = subject.verdict(
        Outcome.INCONCLUSIVE,
        measured=f"{stopped}: gain {result.gain.text()} at a ratio of {result.ratio.text()}, "
        f"{_break_even(result)}; outputs were not compared",
        figures=(JudgedFigure("gain", result.gain), JudgedFigure("speed ratio", result.ratio)),
        advice="run it again to its end",
        details=_details(result),
        brief=_rates(result),
        why=stopped,
    )
    return guarded(verdict, result.guard_findings)


def compared_gain_verdict(result: SpeculationResult, subject: Subject, limits: Limits) -> Verdict:
    """The verdict on the gain against limits, for any speed ratio."""
    verdict = judge_limits(result.gain, limits, subject)
    brief = _rates(result, *(limit.value for limit in limits))
    verdict = replace(verdict, details=_details(result), brief=brief)
    return guarded(verdict, result.guard_findings)


def lossless_verdict(result: SpeculationResult, subject: Subject) -> Verdict:
    """Judge the assertion that greedy output with a draft is the target's own, up to near-ties."""
    # The assertion itself judges changes of the output.
    others = [f for f in result.guard_findings if f.voids is not Voids.ALL_BUT_OUTPUT]
    n_prompts = len({run.prompt for run in result.runs})
    verdict = replace(
        output_verdict(result.divergences, result.categories, n_prompts, subject),
        rests_on=result.gain.basis,
    )
    return guarded(verdict, others)


def output_verdict(
    divergences: Sequence[Divergence],
    categories: Sequence[str],
    n_prompts: int,
    subject: Subject,
) -> Verdict:
    """Judge the assertion by the places at which outputs diverge."""
    parted = [d for d in divergences if d.guard_finding]
    return subject.verdict(
        Outcome.FAIL if parted else Outcome.PASS,
        threshold=f"first differences within {NEAR_TIE:g} of the likeliest token's logit",
        measured=parting_text(divergences, n_prompts),
        brief=_parting(divergences, n_prompts),
        bound="lossless",
        advice=str(Guard.DIVERGENT_OUTPUT.remedy) if parted else "",
        details=tuple(divergence_text(categories, d) for d in divergences),
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
        return replace(verdict, outcome=Outcome.FAIL, advice=advice)
    return verdict


def _on_side(
    gain: Estimate, side: RatioSide, at_least: float, only: RatioSide | None
) -> tuple[Outcome, str]:
    """The outcome if the ratio is on the asserted side, in words too."""
    if only not in {None, side}:
        return Outcome.PASS, f"only ratios {only} the rule's are gated, and this one is not"
    if not gain.has_interval:
        return Outcome.INCONCLUSIVE, "too few pairs"
    shown, excluded = gain.shown_above(at_least), gain.shown_at_most(at_least)
    if side == "below":
        return _BELOW_GAINS if shown else _BELOW_NONE
    if shown:
        return _ABOVE_GAINS
    return _ABOVE_NONE if excluded else _ABOVE_OPEN


def _rates(result: SpeculationResult, *limits: float) -> str:
    """The rate without and with the draft, and the gain."""
    rates = " → ".join(map(number_text, (result.alone_rate, result.speculative_rate)))
    return f"{rates} tok/s, {result.gain.brief(apart_from=limits or (0.0,))}"


def _why(sides: Sequence[RatioSide], outcome: Outcome, result: SpeculationResult) -> str:
    """The reason why an asserted gain is not decided."""
    if outcome is not Outcome.INCONCLUSIVE:
        return ""
    if not result.gain.has_interval:
        return why_open(result.gain)
    return "" if len(sides) == 1 else "the speed ratio may be above or below the rule's"


def _rule(when_ratio: float, at_least: float, only: RatioSide | None) -> str:
    limit = limit_text(at_least, CHANGE)
    parts: dict[RatioSide, str] = {
        "above": f"above {limit} at a speed ratio of {when_ratio:g} x or more",
        "below": f"not above {limit} at a lower one",
    }
    return parts[only] if only else ", ".join(parts.values())


def _advice(outcome: Outcome, sides: Sequence[RatioSide], result: SpeculationResult) -> str:
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.INCONCLUSIVE:
        return str(_BUDGET)
    best, gain = result.best_k
    if sides == ["below"]:
        even = _break_even(result)
        return f"use {even} instead of the rule of thumb, for this pair here"
    return (
        f"by prediction k={best} is the best for this pair, with {100 * gain:+.1f} %; "
        "otherwise use a "
        "draft that is faster or accepted more often, or decode without one"
    )


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


def _break_even(result: SpeculationResult) -> str:
    return break_even_text(result.break_even_ratio, result.counts.mean_length, result.verifying)


def parting_text(divergences: Sequence[Divergence], n_prompts: int) -> str:
    """On how many prompts outputs part, and how near to a tie."""
    if not divergences:
        on = f" on all of {n_prompts} prompts" if n_prompts > 1 else ""
        return f"the same tokens{on}"
    widest = max(d.margin.largest for d in divergences)
    prompts = len({d.prompt for d in divergences})
    return (
        f"outputs part on {prompts} of {n_prompts} prompts, first differences up to {widest:.3g} "
        "below the likeliest token's logit"
    )


def _parting(divergences: Sequence[Divergence], n_prompts: int) -> str:
    """The verdict in few words."""
    prompts = len({d.prompt for d in divergences})
    same = f"{n_prompts - prompts} of {counted_text(n_prompts, 'prompts')} the same"
    near = not any(d.guard_finding for d in divergences)
    return f"{same}{', otherwise near-ties' if divergences and near else ''}"


def divergence_text(categories: Sequence[str], parting: Divergence) -> str:
    """The place at which outputs diverge, and by how much."""
    batched, single = parting.margin.batched, parting.margin.single
    return (
        f"{categories[parting.prompt]} prompt {parting.prompt + 1}, token {parting.position + 1}: "
        f"{parting.tokens[0]} alone, {parting.tokens[1]} with the draft; below the likeliest by "
        f"{batched[0]:.3g} and {batched[1]:.3g} in the batch, by {single[0]:.3g} and "
        f"{single[1]:.3g} in a single step"
    )


_SAME: Final = "identical"
#: Characters that are shown of two texts from where they part.
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
        return judge_invalid(subject, _SAME, [problem], remedy="see what its `text` matches")
    if outputs.again != outputs.texts[0][0]:
        where = _where(outputs.texts[0][0], outputs.again)
        problem = f"{names[0]} does not repeat itself: {where}"
        return judge_invalid(subject, _SAME, [problem], remedy="have it sample greedily")
    parted = [(n, *pair) for n, pair in enumerate(outputs.texts, 1) if pair[0] != pair[1]]
    n_prompts = len(outputs.texts)
    measured = f"{n_prompts - len(parted)} of {n_prompts} outputs of {n_tokens} tokens are the same"
    return subject.verdict(
        Outcome.FAIL if parted else Outcome.PASS,
        threshold=_SAME,
        measured=measured,
        brief=f"{n_prompts - len(parted)}/{n_prompts} the same",
        bound=_SAME,
        advice=subject.if_failed if parted else "",
        compared=ComparedSides(ran=(outputs.ran[0].facts(), outputs.ran[1].facts())),
        details=tuple(f"prompt {n}: {_where(one, other)}" for n, one, other in parted[:3]),
    )


def _where(one: str, other: str) -> str:
    """The place at which two texts diverge, in words."""
    n = first_divergence(list(map(ord, one)), list(map(ord, other))) or 0
    sides = " and ".join(shown(text[n : n + _SHOWN], 2 * _SHOWN) for text in (one, other))
    return f"from character {n + 1} on {sides}"
