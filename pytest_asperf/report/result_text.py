"""A verdict's result in words: the limit, what was measured, why it is open, and remarks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import islice
from typing import Final

from pytest_asperf.analysis.capacity import WEIGHTS_SHARE
from pytest_asperf.analysis.facts import ComparedPairs
from pytest_asperf.analysis.guards.guard import Consequence
from pytest_asperf.analysis.limit_verdict import limits_text
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import (
    AnyResult,
    Differs,
    Every,
    FitsMemory,
    GainRule,
    JudgedFigure,
    Limits,
    MemoryGrowth,
    Operator,
    Ordered,
    ParetoFront,
    Part,
    Parting,
    RunsAsBaseline,
    SameTexts,
    SameTokens,
    SameVectors,
    SpeculationGain,
    VariantValues,
    WithinLimits,
    WithinTolerance,
    Words,
)
from pytest_asperf.analysis.speculation_model import break_even_text
from pytest_asperf.analysis.stats.estimate import (
    CHANGE,
    Estimate,
    counted_text,
    limit_text,
    memory_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import shown
from pytest_asperf.records.kinds import SIDES, Facts, both_sides

_SIGNS: Final[dict[Operator, str]] = {"<": "<", "<=": "≤", ">": ">", ">=": "≥"}
#: Facts that always differ between builds.
_OWN: Final = frozenset({"model", "client"})
#: Figures that the one-line result names.
_NAMED: Final = 3
#: Characters that are shown of a text from where it parts from another.
_SHOWN: Final = 80


def in_words(verdict: Verdict) -> Words:
    """The result and all remarks in words, after a guard's finding that overruled it."""
    said = result_words(verdict.result, verdict.figures, verdict.outcome)
    remarks = dict.fromkeys((*said.details, *verdict.details, *_differences(verdict.facts)))
    said = replace(said, details=tuple(remarks))
    compared, finding = verdict.compared, verdict.overruled
    if isinstance(compared, ComparedPairs) and compared.processes is not None:
        n = compared.processes
        few = f"{n} process{'es' * (n > 1)} of each build, how processes differ is not covered"
        said = replace(said, measured=f"{said.measured}; {few}")
    if verdict.problem:
        said = replace(said, measured=verdict.problem, brief="", bound="", why="")
    if finding is not None and finding.consequence is Consequence.INVALID:
        return replace(said, measured=_found(verdict), brief="", why="")
    if finding is not None:
        measured = f"{said.measured}, but {finding.found}"
        return replace(
            said, measured=measured, brief=said.brief or said.measured, why=finding.found
        )
    return said


def _differences(ran: Facts) -> Iterator[str]:
    """The facts that differ between two builds; the model's row names the build.

    The cost of a client is measured in each build, and differs by chance.
    """
    if not any(label.startswith(SIDES) for label, _ in ran):
        return
    rows = [(label, one, other) for label, one, other in both_sides(ran) if one != other]
    texts = [
        f"differs: {label} {one} -> {other}" for label, one, other in rows if label not in _OWN
    ]
    yield from texts or ["the two run records do not differ"]


def _found(verdict: Verdict) -> str:
    """The finding that made a verdict INVALID; published figures have no other record of guards."""
    finding = verdict.overruled
    if finding is None:
        return ""
    if verdict.source != "recorded":
        return finding.found
    named = (one.guard for one in verdict.guards if one.consequence is Consequence.INVALID)
    others = dict.fromkeys(named)
    others.pop(finding.guard, None)
    also = f"; also {', '.join(others)}" if others else ""
    return f"{finding.guard}: {finding.found}{also}"


@singledispatch
def result_words(result: AnyResult | None, *judged: object) -> Words:
    """A result in words, with the figures that it judged and the outcome; each kind is below."""
    raise TypeError(f"{type(result).__name__} with {judged} is no result of judging")


@result_words.register(type(None))
def _nothing(*_: object) -> Words:
    return Words()


@result_words.register(Words)
def _words(result: Words, *_: object) -> Words:
    return result


@result_words.register(Differs)
def _differs(result: Differs, figures: Sequence[JudgedFigure], _: Outcome) -> Words:
    threshold = f"more than {percent_text(result.share)} from the {result.device}'s"
    said = Words(threshold=threshold)
    return _with_figure(said, figures, (-result.share, result.share))


def _with_figure(
    said: Words, figures: Sequence[JudgedFigure], limits: tuple[float, ...], before: str = ""
) -> Words:
    (one,) = figures
    brief = f"{before}{one.estimate.brief(apart_from=limits)}"
    return replace(said, measured=one.estimate.text(apart_from=limits), brief=brief)


@result_words.register(WithinLimits)
def _within_limits(
    result: WithinLimits, figures: Sequence[JudgedFigure], outcome: Outcome
) -> Words:
    values, threshold = tuple(limit.value for limit in result.limits), limits_text(result.limits)
    if result.faster_by is not None:
        gain = "less energy" if result.metered else faster_text(result.faster_by)
        cost = "energy" if result.metered else "time"
        threshold = f"{gain} ({number_text(values[0])}x the {cost})"
    said = Words(threshold=threshold, bound=_bound_text(result.limits))
    if not figures:
        return replace(said, measured=f"no {result.counted} was finished" * bool(result.counted))
    estimate = figures[0].estimate
    said = _with_figure(said, figures, values, _values_text(result.variants))
    if result.baseline is not None:
        baseline = f"({number_text(result.baseline, 4)} in the baseline)"
        said = replace(said, measured=f"{said.measured} {baseline}")
    if result.where is not None:
        at = result.where.text(apart_from=(figures[0].at_most or 0.0,))
        said = replace(said, measured=f"{said.measured} at {at}")
    if outcome is not Outcome.INCONCLUSIVE:
        return said
    if result.out_of is not None:
        scored = f"{estimate.n} of {counted_text(result.out_of, estimate.counted)} scored"
        return replace(said, why=scored)
    return replace(said, why=_no_interval(estimate))


def _no_interval(estimate: Estimate) -> str:
    if estimate.has_interval:
        return ""
    return f"{estimate.basis} {'gives' if estimate.n == 1 else 'give'} no interval"


def _values_text(variants: VariantValues | None) -> str:
    """The values before a figure: ``40 → 42 tok/s, ``."""
    if variants is None:
        return ""
    digits = 4 if len(variants.values) == 1 else 3
    values = (number_text(value, digits) for value in variants.values)
    text = (" → " if variants.is_change else " / ").join(values)
    return f"{text} {variants.unit}".rstrip() + ", "


def _bound_text(limits: Limits) -> str:
    values = [limit_text(one.value, one.unit) for one in limits]
    text = " to ".join(values) if len(limits) > 1 else f"{_SIGNS[limits[0].operator]} {values[0]}"
    unit = limits[0].unit
    return text.replace(f" {unit}", "") if unit else text


def faster_text(by: float) -> str:
    """The threshold of the assertion to be faster by a fraction."""
    return f"faster by {percent_text(by)} or more" if by else "faster"


@result_words.register(WithinTolerance)
def _within_tolerance(
    result: WithinTolerance, figures: Sequence[JudgedFigure], _: Outcome
) -> Words:
    tolerance, floor = percent_text(result.tolerance), percent_text(result.fails_above)
    zone = f"PASS excludes +{tolerance}; FAIL does not, and shows more than +{floor}"
    said = Words(threshold=f"within +{tolerance}", bound=f"≤ +{tolerance}", details=(zone,))
    if not figures:
        return replace(said, measured="no pair was finished")
    change = _change_of(figures[0].estimate)
    brief = _values_text(result.variants) + time_text(change, result.tolerance, result.cost)
    why = f"up to {percent_text(result.mean)} on average over the pairs" if result.mean else ""
    if result.other is not None:
        label = "the median pair" if result.cost == "total time" else "total time"
        other = f"{label}: {time_text(result.other, result.tolerance)}"
        said = replace(said, details=(zone, other))
    measured = f"{brief}, but {why}" if why else brief
    return replace(said, measured=measured, brief=brief, why=why)


def _change_of(ratio: Estimate) -> Estimate:
    point, low, high = ratio.point - 1, ratio.low - 1, ratio.high - 1
    return replace(ratio, point=point, low=low, high=high, unit=CHANGE)


def time_text(change: Estimate, tolerance: float, cost: str = "time") -> str:
    """A change of a time with its direction: ``+62 % slower [50, 74]``."""
    figure, interval = change.brief_parts(apart_from=(tolerance,))
    is_more, tail = change.shown_above(0), ""
    if cost == "energy":
        what = "more energy" if is_more else "energy"
    elif is_more:
        what, tail = "slower", " in all" if cost != "time" else ""
    else:
        what, tail = cost, ", faster" if change.shown_below(0) else ""
    return " ".join(filter(None, (figure, what, interval))) + tail


@result_words.register(Every)
def _every(result: Every, figures: Sequence[JudgedFigure], _: Outcome) -> Words:
    parts = list(_parts(result, figures))
    counted = f"{counted_text(result.operations, 'operations')}" if result.operations else ""
    said = Words(threshold=_every_limit(result, parts), rests_on=counted)
    said = replace(said, bound=_every_bound(result, parts))
    if len(parts) == 1 and result.from_limit is None:
        ((part, own),) = parts
        label = "" if result.of == "evidence" else f"{part.label} "
        measured, brief = f"{label}{own.measured}", f"{label}{own.brief or own.measured}"
        said = replace(said, measured=measured, brief=brief, why=own.why)
        return replace(said, details=_remarks(result, parts))
    failed = [pair for pair in parts if pair[0].outcome is Outcome.FAIL]
    unshown = [pair for pair in parts if pair[0].outcome is not Outcome.PASS]
    if result.of == "quantities":
        labelled = [f"{part.label} {own.measured}" for part, own in parts]
        points = zip(parts, figures, strict=False)
        short = (f"{part.label} {_point(one.estimate)}" for (part, _), one in points)
        why = next((own.why for _, own in unshown if own.why), "")
        return replace(said, measured=", ".join(labelled), brief=", ".join(short), why=why)
    named = failed or unshown or parts
    text = ", ".join(f"{part.label} {own.measured}" for part, own in named[:_NAMED])
    more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    head = f"{len(parts) - len(unshown)} of {len(parts)} shown"
    if failed:
        head = f"fails in {len(failed)} of {len(parts)}"
    measured, brief = f"{head}; {text}{more}", head
    if result.accepted:
        of_builds = ", ".join(f"{taken}/{drafted}" for taken, drafted in result.accepted)
        measured = f"{measured}; accepted {of_builds}"
    if result.of == "checks":
        brief = parts[0][1].brief or head
    return replace(said, measured=measured, brief=brief, details=_remarks(result, parts))


def _parts(result: Every, figures: Sequence[JudgedFigure]) -> Iterator[tuple[Part, Words]]:
    rest = iter(figures)
    for part in result.parts:
        own = tuple(islice(rest, part.n_figures))
        said = result_words(part.result, own, part.outcome)
        if part.problem:
            decides = not own or part.outcome is Outcome.INVALID
            measured = part.problem if decides else f"{said.measured}, but {part.problem}"
            said = replace(said, measured=measured, brief=said.brief or measured)
        yield part, said


def _every_limit(result: Every, parts: Sequence[tuple[Part, Words]]) -> str:
    if result.from_limit is not None:
        limit = limit_text(result.from_limit.value, result.from_limit.unit)
        return f"above 0 from {limit} on, and not above 0 below"
    if len(parts) == 1 or result.of == "figures":
        return parts[0][1].threshold if parts else ""
    if result.of == "evidence":
        return "by every line of evidence"
    between = ", " if result.of == "checks" else " and "
    return between.join(f"{part.label} {own.threshold}" for part, own in parts)


def _every_bound(result: Every, parts: Sequence[tuple[Part, Words]]) -> str:
    if not parts or result.from_limit is not None:
        return ""
    is_evidence = result.of == "evidence" and len(parts) > 1
    return "every line of evidence" if is_evidence else parts[0][1].bound


def _remarks(result: Every, parts: Sequence[tuple[Part, Words]]) -> tuple[str, ...]:
    """Remarks on each condition; of evidence the figure with its limit, or why there is none."""
    if result.of != "evidence":
        return tuple(dict.fromkeys(line for _, own in parts for line in own.details))
    found = [
        (part, f"{part.outcome}, {own.measured}, wanted {own.threshold}") for part, own in parts
    ]
    texts = ((part, part.problem or text) for part, text in found)
    further = ((part, part.problem) for part in result.further)
    return tuple(f"{part.label}: {text}" for part, text in (*texts, *further))


def _point(estimate: Estimate) -> str:
    if estimate.unit in {CHANGE, "share"}:
        return percent_text(estimate.point, 2)
    return f"{number_text(estimate.point, 2)} {estimate.unit}".rstrip()


@result_words.register(Ordered)
def _ordered(result: Ordered, figures: Sequence[JudgedFigure], outcome: Outcome) -> Words:
    up = result.direction == "rising"
    steps = [(one, one.estimate) for one in figures]
    shown = [e.shown_above(0) if up else e.shown_below(0) for _, e in steps]
    excluded = [e.shown_at_most(0) if up else e.shown_at_least(0) for _, e in steps]
    is_fail = outcome is Outcome.FAIL
    culprits = [
        f"{one.label} {e.text(apart_from=(0,))}"
        for (one, e), is_shown, is_excluded in zip(steps, shown, excluded, strict=True)
        if (is_excluded if is_fail else not is_shown)
    ]
    brief = f"{sum(shown)} of {counted_text(len(shown), 'steps')} shown"
    return Words(
        threshold=f"{result.direction} along {', '.join(result.labels)}",
        bound=result.direction,
        measured="; ".join(filter(None, (brief, ", ".join(culprits)))),
        brief=brief,
    )


@result_words.register(ParetoFront)
def _pareto(result: ParetoFront, figures: Sequence[JudgedFigure], outcome: Outcome) -> Words:
    said = Words(
        threshold=f"on the Pareto front of {', '.join(result.objectives)}", bound="Pareto front"
    )
    if not result.against:
        text = f"dominated by none of {len(result.others)}"
        return replace(said, measured=text, brief=text)
    n, is_fail = len(result.objectives), outcome is Outcome.FAIL
    values = ", ".join(
        f"{one.label} {one.estimate.text(apart_from=(0,))}"
        for name in result.against
        for one in figures[n * result.others.index(name) :][:n]
    )
    return replace(
        said,
        measured=f"{'dominated by' if is_fail else 'undecided against'} {values}",
        brief=f"{'dominated by' if is_fail else 'open against'} {', '.join(result.against)}",
    )


_ANSWERS: Final = {
    ("above", "gain"): "it gains where the rule predicts it",
    ("above", "no gain"): "no gain where the rule promises one",
    ("above", "not shown"): "neither a gain nor its absence is shown",
    ("below", "gain"): "a gain below the ratio: the rule is too strict here",
    ("below", "no gain"): "no gain is shown below the rule's ratio",
}


@result_words.register(SpeculationGain)
def _gain(result: SpeculationGain, figures: Sequence[JudgedFigure], outcome: Outcome) -> Words:
    gain, ratio = (one.estimate for one in figures)
    rule, even = result.rule, (result.break_even, result.mean_length, result.verifying)
    limits = (0.0,) if rule is None else (rule.at_least,)
    brief = _values_text(result.rates) + gain.brief(apart_from=limits)
    at = f"at a ratio of {ratio.text()}, {break_even_text(*even)}"
    if rule is None:
        stopped = f"stopped after {gain.basis}"
        measured = f"{stopped}: gain {gain.text()} {at}; outputs were not compared"
        return Words(measured=measured, brief=brief, why=stopped)
    answers = " or ".join(dict.fromkeys(_answers(rule)))
    why = ""
    if outcome is Outcome.INCONCLUSIVE:
        one_side = (
            "" if len(rule.answers) == 1 else "the speed ratio may be above or below the rule's"
        )
        why = _no_interval(gain) or one_side
    return Words(
        threshold=_rule(rule),
        bound=f"> {limit_text(rule.at_least, CHANGE)} from {number_text(rule.when_ratio)}x",
        measured=f"{answers}: gain {gain.text(apart_from=limits)} {at}, compared with the rule's "
        f"{rule.when_ratio:g} x",
        brief=brief,
        why=why,
    )


def _answers(rule: GainRule) -> Iterator[str]:
    for one in rule.answers:
        if one.answer == "not gated":
            yield f"only ratios {rule.only} the rule's are gated, and this one is not"
        else:
            yield _ANSWERS.get((one.direction, one.answer), one.answer)


def _rule(rule: GainRule) -> str:
    limit = limit_text(rule.at_least, CHANGE)
    above = f"above {limit} at a speed ratio of {rule.when_ratio:g} x or more"
    below = f"not above {limit} at a lower one"
    return {"above": above, "below": below}.get(rule.only or "", f"{above}, {below}")


@result_words.register(SameTokens)
def _tokens(result: SameTokens, *_: object) -> Words:
    """How many outputs part, and how near to a tie."""
    parted, n = result.parted, result.n_prompts
    prompts = len({one.prompt for one in parted})
    measured = f"the same tokens{f' on all of {n} prompts' if n > 1 else ''}"
    if parted:
        widest = max(max(*one.batched, *one.single) for one in parted)
        measured = (
            f"outputs part on {prompts} of {n} prompts, first differences up to {widest:.3g} "
            "below the likeliest token's logit"
        )
    near = bool(parted) and all(one.is_tie for one in parted)
    same = f"{n - prompts} of {counted_text(n, 'prompts')} the same"
    return Words(
        threshold=f"first differences within {result.near_tie:g} of the likeliest token's logit",
        bound="lossless",
        measured=measured,
        brief=f"{same}{', otherwise near-ties' if near else ''}",
        rests_on="" if result.n_pairs is None else counted_text(result.n_pairs, "pairs"),
        details=tuple(map(_parting, parted)),
    )


def _parting(one: Parting) -> str:
    """The place at which outputs diverge, and by how much."""
    batched, single = one.batched, one.single
    return (
        f"{one.category} prompt {one.prompt + 1}, token {one.position + 1}: {one.tokens[0]} alone, "
        f"{one.tokens[1]} with the draft; below the likeliest by {batched[0]:.3g} and "
        f"{batched[1]:.3g} in the batch, by {single[0]:.3g} and {single[1]:.3g} in a single step"
    )


@result_words.register(SameTexts)
def _texts(result: SameTexts, *_: object) -> Words:
    n, same = result.n_prompts, result.n_same
    details = (
        f"prompt {one.prompt}: from character {one.character} on "
        + " and ".join(shown(text, _SHOWN) for text in one.texts)
        for one in result.parted
    )
    return Words(
        threshold="identical",
        bound="identical",
        measured=f"{same} of {n} outputs of {result.n_tokens} tokens are the same",
        brief=f"{same}/{n} the same",
        details=tuple(details),
    )


@result_words.register(FitsMemory)
def _fit(result: FitsMemory, *_: object) -> Words:
    fit = result.fit
    memory, limit, needed = fit.memory, fit.weights_limit_bytes, memory_text(fit.needed_bytes)
    share = f"{100 * WEIGHTS_SHARE:.0f} %" if memory.is_shared else ""
    compute = "compute buffers are not counted"
    if fit.compute_bytes is not None:
        compute = f"{memory_text(fit.compute_bytes)} of it are compute buffers"
    sizes = " and ".join(
        f"{number_text(a / 2**20, 4)} and {number_text(b / 2**20, 4)} MiB"
        for a, b in result.expected
    )
    expected = (f"predicted and allocated: {sizes}",) if sizes else ()
    of = f"{share} of memory" if share else "the card's memory"
    return Words(
        threshold=f"weights below {of}, with the KV cache below {memory.usable_text}",
        bound=f"< {share}" if share else "fits",
        measured=f"weights {memory_text(fit.weights_bytes)} of {memory_text(limit)}, with the KV "
        f"cache {needed}",
        brief=f"{needed} of {memory_text(memory.usable_bytes)}",
        rests_on="sizes" if result.is_predicted else "allocated",
        details=(f"memory: {memory.basis}", compute, *expected),
    )


@result_words.register(MemoryGrowth)
def _growth(result: MemoryGrowth, *_: object) -> Words:
    tolerance = percent_text(result.tolerance)
    rows = [
        f"{one.label}: {memory_text(one.baseline)} → {memory_text(one.candidate)}"
        for one in result.parts
    ]
    grown = "; ".join(row for row, one in zip(rows, result.parts, strict=True) if one.is_too_much)
    counted = [one for one in result.parts if "RSS" not in one.label]
    totals = sum(one.baseline for one in counted), sum(one.candidate for one in counted)
    brief, n = " → ".join(map(memory_text, totals)), len(counted)
    return Words(
        threshold=f"at most +{tolerance} of each, and {memory_text(result.counted_slack)} by the "
        f"engine's count or {memory_text(result.process_slack)} of its process, of which "
        f"{memory_text(result.left_slack)} left by requests",
        bound=f"≤ +{tolerance}",
        measured=grown or f"{brief} by the engine's count, {', '.join(rows[n : n + 2])}",
        brief=grown or brief,
        details=tuple(rows),
    )


@result_words.register(SameVectors)
def _vectors(result: SameVectors, figures: Sequence[JudgedFigure], _: Outcome) -> Words:
    alone, batched = (f"{one.estimate.point:.6f}" for one in figures[:2])
    limit = f"{figures[0].at_least:.6f}"
    others = ("lengths changed by {} at most", "one number by {} of its spread over texts")
    changed = ", ".join(
        text.format(percent_text(one.estimate.point, 2))
        for text, one in zip(others, figures[2:], strict=False)  # older reports have no second
    )
    baseline = f"{1 - result.drift:.6f} in a batch from alone, {1 - result.between:.6f}"
    return Words(
        threshold=f"every cosine at least {limit}, lengths within "
        f"{percent_text(figures[2].at_most or 0, 2)}",
        bound=f"≥ {limit}",
        measured=f"smallest cosine {alone} from the baseline, {batched} in a batch from alone, "
        + changed,
        brief=f"cosine {alone}, in a batch {batched}",
        details=(f"baseline: {baseline} between two texts (median)",),
    )


@result_words.register(RunsAsBaseline)
def _runs(result: RunsAsBaseline, *_: object) -> Words:
    if result.max_seconds is not None:
        spent = f"not begun: the budget of {result.max_seconds:g} s was spent"
        return Words(threshold="as in the baseline", measured=spent)
    if not result.failures:
        return Words(threshold="as in the baseline")
    manners = [f" ({one.manner})" if one.manner else "" for one in result.failures]
    how = list(
        dict.fromkeys(f"{one.did}{m}" for one, m in zip(result.failures, manners, strict=True))
    )
    twice = f"{result.failures[-1].did} twice{manners[-1]}"
    measured = f"candidate {twice if len(how) == 1 else ', then '.join(how)}"
    return Words(
        threshold="runs as the baseline does", measured=f"{measured}, baseline ran twice in between"
    )
