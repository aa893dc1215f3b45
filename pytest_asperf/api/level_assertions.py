"""`assert_degrades_less` and `assert_equivalent`: claims that compare two levels."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pytest_asperf.analysis import guards, metrics
from pytest_asperf.analysis.combined_verdict import judge_each
from pytest_asperf.analysis.limit_verdict import judge_below, judge_within, parse_percent
from pytest_asperf.analysis.stats.chunk_intervals import (
    chunk_difference_interval,
    delta_ppl,
    paired_differences,
)
from pytest_asperf.analysis.stats.estimate import CHANGE, DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.quantiles import shared_confidence
from pytest_asperf.analysis.verdict import Subject, guarded, judge_invalid
from pytest_asperf.api.engines import Engines, engines_alike
from pytest_asperf.api.ladder import Ladder, Perplexity, metric_of
from pytest_asperf.api.measurement_context import require_kind, settle, unknown_word
from pytest_asperf.api.ratio import compare_sides
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.validity import twin_trips
from pytest_asperf.verdicts.ratio import equivalence_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.samples import Chunks
    from pytest_asperf.analysis.verdict import Figure, Verdict

Quantity = Literal["kld", "ppl"]

_NAMES = {"kld": "KLD", "ppl": "PPL"}


def assert_degrades_less(
    perplexity: Perplexity | Sequence[Perplexity],
    *,
    than: Perplexity | Sequence[Perplexity],
    quantity: Quantity = "kld",
    times: float = 1,
) -> Verdict:
    """Claim that one way of quantising costs less than another, on the same tokens.

    With several levels the claim also covers each step from one level to the next: that step must
    cost less too. Everything is paired token by token, the intervals are over chunks, and all
    figures of one claim share the error.

    Args:
        perplexity: a level, or several in the order in which quality falls.
        than: the levels to compare with, as many, of the same baseline.
        quantity: `kld`, in nats, or `ppl`, as a relative change.
        times: so many times the cost of the first is less than that of the other; costs in PPL are
            multiplied in nats per token, the logarithm of PPL.

    Raises:
        VerdictError: the verdict is not a PASS; INVALID where both are the same weights, or were
            not scored on the same tokens.
        ConfigError: not levels of a ladder, not as many on both sides, another quantity, or times
            below 1.
    """
    __tracebackhide__ = True
    if quantity not in _NAMES:
        raise unknown_word("quantity", str(quantity), tuple(_NAMES))
    given: object = times
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given < math.inf:
        raise ConfigError(
            f"assert_degrades_less: times={shown(times, 80)} is not a number from 1",
            why="it says how many times less the first costs",
            remedy="write times=3, or leave it out",
        )
    ours, theirs = _levels(perplexity, "the first argument"), _levels(than, "than")
    if len(ours) != len(theirs):
        raise ConfigError(
            f"assert_degrades_less: {len(ours)} against {len(theirs)} levels",
            why="each level is compared with its own counterpart",
            remedy="give as many of one as of the other, in the same order",
        )
    subject = Subject(
        f"{'' if times == 1 else f'{times:g} times the '}{_NAMES[quantity]}"
        f"{'' if times == 1 else ' loss'} of {_titles(ours)} less that of {_titles(theirs)}",
        "live",
        tuple(dict.fromkeys(row for level in (*ours, *theirs) for row in level.result.rows())),
    )
    measurement = ours[0].measurement
    if problems := [
        str(guard_finding)
        for pair in zip(ours, theirs, strict=True)
        for guard_finding in _trips(*pair)
    ]:
        remedy = "name two models of the same baseline that differ, in one quant_ladder marker"
        return settle(
            judge_invalid(subject, "below 0", problems, remedy=remedy), measurement.record
        )
    figures = _figures(ours, theirs, quantity, times)
    return settle(judge_each(figures, partial(judge_below, limit=0.0), subject), measurement.record)


def assert_equivalent(
    ladder: Ladder | Engines,
    level: str,
    other: str,
    quantity: str = "tg128",
    *,
    within: str | float = "5%",
) -> Verdict:
    """Claim that two levels of a ladder are alike in a quantity, or two engines in speed.

    PASS only if the whole interval lies within the limits. If too little was measured to show that,
    the verdict is INCONCLUSIVE.

    Args:
        ladder: the levels; or the `engines` fixture, for one model on two engines.
        level: a level, as the marker names it; or an engine, `"mlx"` or `"mlx:4bit"`.
        other: the level or engine to compare with, likewise.
        quantity: a workload such as `tg128`, which is run in pairs until the claim is decided, as
            in a gate; of levels also `size` and `ppl`.
        within: how far the first may be from the second either way, `"5%"` or a fraction.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such level or quantity, or a level against itself.
        AsperfError: a level could not be measured.
    """
    __tracebackhide__ = True
    example = 'assert_equivalent(ladder, "Q8_0", "Q6_K", "tg128", within="5%")'
    require_kind(ladder, (Ladder, Engines), example)
    limit = parse_percent(within, where="assert_equivalent: within")
    if isinstance(ladder, Engines):
        _require_room(limit)
        return engines_alike(ladder, level, other, quantity, limit)
    for name in (level, other):
        ladder.require(name)
    if level == other:
        raise ConfigError(
            f"assert_equivalent: {level} is compared with itself",
            why="that shows nothing",
            remedy="name two levels of the ladder",
        )
    metric = metric_of(quantity)
    if metric in {metrics.TG, metrics.PP}:
        return _as_fast(ladder, level, other, quantity, limit)
    if metric is metrics.SIZE:
        return _as_large(ladder, level, other, limit)
    if metric is not metrics.PPL:
        raise ConfigError(
            f"assert_equivalent: {quantity} has no relative change",
            why="it is itself a distance from the baseline, and 0 there",
            remedy="use size, ppl or a workload such as tg128",
        )
    first, second = ladder[other].result, ladder[level].result
    change = delta_ppl([c.nll for c in first.chunks], [c.nll for c in second.chunks])
    name = f"{quantity} of {second.ran.model} against {first.ran.model}"
    ran = tuple(dict.fromkeys((*second.rows(), *first.rows())))
    verdict = judge_within(change, Subject(name, "live", ran), at_least=0 - limit, at_most=limit)
    guard_findings = twin_trips((first, second))
    return settle(guarded(verdict, guard_findings), ladder.measurement.record)


def _as_large(ladder: Ladder, level: str, other: str, within: float) -> Verdict:
    __tracebackhide__ = True
    first, second = ladder.located(other), ladder.located(level)
    change = Estimate.exact(second.size_bytes / first.size_bytes - 1, CHANGE)
    name = f"size of {second.ref.label} against {first.ref.label}"
    subject = Subject(name, "live", ladder.files(level, other))
    verdict = judge_within(change, subject, at_least=0 - within, at_most=within)
    return settle(verdict, ladder.measurement.record)


def _as_fast(ladder: Ladder, level: str, other: str, workload: str, within: float) -> Verdict:
    __tracebackhide__ = True
    _require_room(within)
    sides = ladder.side(other, workload), ladder.side(level, workload)
    result = compare_sides(sides, ladder.measurement, (1 / (1 + within), 1 + within))
    verdict = equivalence_verdict(result, within)
    return settle(verdict, ladder.measurement.record, interrupted=result.interrupted)


def _require_room(within: float) -> None:
    if not within:
        raise ConfigError(
            "assert_equivalent: within=0 cannot be shown of a rate",
            why="no number of pairs shows that two rates are the same to the last digit",
            remedy='allow a difference that does not matter, such as within="5%"',
        )


def _levels(given: object, where: str) -> list[Perplexity]:
    several = list(given) if isinstance(given, list | tuple) else [given]
    levels = [level for level in several if isinstance(level, Perplexity)]
    if not levels or len(levels) < len(several):
        raise ConfigError(
            f"assert_degrades_less: {where} is not a level that was scored",
            why="what it costs is taken from its tokens' scores",
            remedy='take the ladder fixture, and write ladder["4bit"], or a list of such',
        )
    return levels


def _titles(levels: Sequence[Perplexity]) -> str:
    return ", ".join(level.result.ran.model for level in levels)


def _trips(ours: Perplexity, theirs: Perplexity) -> Iterator[GuardFinding]:
    """Why two levels cannot be compared."""
    a, b = ours.result, theirs.result
    if unequal := guards.unequal_work(a.work, b.work):
        yield unequal
    yield from twin_trips((a, b))


def _figures(
    ours: Sequence[Perplexity], theirs: Sequence[Perplexity], quantity: Quantity, times: float
) -> list[Figure]:
    """By how much ours costs more: at each level, and in each step to the next."""
    confidence = shared_confidence(DECISION_CONFIDENCE, 2 * len(ours) - 1)
    a = [_times(times, level, quantity) for level in ours]
    b = [_scores(level, quantity) for level in theirs]
    figures = [
        (_short(level) if len(ours) > 1 else "", _compared(y, x, quantity, confidence))
        for level, x, y in zip(ours, a, b, strict=True)
    ]
    steps = zip(pairwise(ours), pairwise(a), pairwise(b), strict=True)
    return figures + [
        (
            f"{_short(first)} → {_short(second)}",
            _compared(paired_differences(*y), paired_differences(*x), quantity, confidence),
        )
        for (first, second), x, y in steps
    ]


def _short(level: Perplexity) -> str:
    """A level's name without its model."""
    return level.level.rpartition(":")[2]


def _times(times: float, level: Perplexity, quantity: Quantity) -> list[Sequence[float]]:
    """A level's scores, had it cost so many times as much."""
    scores = _scores(level, quantity)
    if times == 1:
        return scores
    if quantity == "kld":
        return [[times * kld for kld in chunk] for chunk in scores]
    return [
        [start + times * (nll - start) for nll, start in zip(own, base.nll, strict=True)]
        for own, base in zip(scores, level.result.baseline_chunks, strict=True)
    ]


def _scores(level: Perplexity, quantity: Quantity) -> list[Sequence[float]]:
    return [chunk.nll if quantity == "ppl" else chunk.kld for chunk in level.result.chunks]


def _compared(base: Chunks, other: Chunks, quantity: Quantity, confidence: float) -> Estimate:
    if quantity == "ppl":
        return delta_ppl(base, other, confidence)
    return chunk_difference_interval(base, other, confidence, unit=metrics.KLD.unit)
