"""Verdicts on one quantity against a limit, how a limit is read, and advice that would decide."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from pytest_asperf.analysis.results import JudgedFigure, Limit, Limits, Operator, WithinLimits
from pytest_asperf.analysis.stats.estimate import (
    CHANGE,
    RATIO,
    SHARE,
    Estimate,
    counted_text,
    limit_text,
)
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.errors import Advice, ConfigError, shown

#: An estimate with its label.
Figure: TypeAlias = tuple[str, Estimate]
#: Lower and upper limit of an assertion, in its figure's unit; None is no limit.
Accepted: TypeAlias = tuple[float | None, float | None]

#: Beyond this many times the present observations, "measure more" is no advice.
_PRACTICABLE: Final = 100
#: By the counted unit: the session's setting of its number.
_SETTINGS: Final = {
    "chunks": "chunks",
    "loads": "repetitions",
    "runs of one load": "repetitions",
    "pairs": "max_pairs",
}


def outcome_of(*, holds: bool, broken: bool) -> Outcome:
    """FAIL if the assertion is shown false, PASS if it is shown true, otherwise INCONCLUSIVE."""
    if broken:
        return Outcome.FAIL
    return Outcome.PASS if holds else Outcome.INCONCLUSIVE


def advice_for(
    outcome: Outcome, subject: Subject, undecided: Sequence[tuple[Figure, tuple[float, ...]]]
) -> tuple[Advice, ...]:
    """Nothing after PASS, the subject's remedy after FAIL, otherwise how to decide each figure."""
    if outcome is Outcome.PASS:
        return ()
    if outcome is Outcome.FAIL:
        return (Advice(subject.if_failed),)
    labelled = [(label, _would_decide(e, limits)) for (label, e), limits in undecided]
    return tuple(
        one if label == subject.name else Advice(f"{label}: {one.text}", settings=one.settings)
        for label, one in labelled
    )


def _would_decide(estimate: Estimate, limits: tuple[float, ...]) -> Advice:
    if not estimate.has_interval:
        if estimate.needed is None:
            return Advice(f"measure more than {estimate.basis}")
        needed = counted_text(estimate.needed, estimate.counted)
        return Advice(f"measure {needed}", settings=_setting(estimate, estimate.needed))
    total = _needed(estimate, limits)
    if total > _PRACTICABLE * estimate.n:
        return Advice("too near the limit for more measurements to decide: set another limit")
    more = math.ceil(total - estimate.n)
    two_digits = round(more, 2 - len(str(more))) if more > 99 else more
    return Advice(
        f"about {two_digits} more {estimate.counted} would decide it if the figure stays where "
        "it is",
        settings=_setting(estimate, estimate.n + two_digits),
    )


def _setting(estimate: Estimate, total: int) -> list[tuple[str, str]]:
    """The setting of the number to measure, with its value."""
    if estimate.repetitions is not None:
        return [("repetitions", str(math.ceil(total * estimate.repetitions / estimate.n)))]
    key = _SETTINGS.get(estimate.counted)
    return [(key, str(total))] if key else []


def _needed(estimate: Estimate, limits: tuple[float, ...]) -> float:
    """Observations after which the interval would contain no limit.

    An interval's width goes with ``1 / sqrt(n)``; with few observations t makes this too many.
    """
    needed: float = estimate.n + 1
    for limit in limits:
        if not estimate.low <= limit <= estimate.high:
            continue
        distance = abs(limit - estimate.point)
        half = (
            estimate.high - estimate.point
            if limit > estimate.point
            else estimate.point - estimate.low
        )
        ratio = half / distance if distance else math.inf
        needed = max(needed, estimate.n * ratio * ratio)
    return needed


def nearest_to_decided(
    candidates: Iterable[Sequence[Figure]],
) -> list[tuple[Figure, tuple[float, ...]]]:
    """For each candidate, the undecided figure that needs the fewest observations."""
    still_open = (
        [f for f in figures if not f[1].is_exact and f[1].low <= 0 <= f[1].high]
        for figures in candidates
    )
    return [(min(fs, key=lambda f: _needed(f[1], (0.0,))), (0.0,)) for fs in still_open if fs]


_Shown: TypeAlias = Callable[[Estimate, float], bool]

_SHARE: Final = re.compile(r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))\s*(?P<percent>%?)", re.ASCII)

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))\s*(?P<unit>[A-Za-z/]+|%)?", re.ASCII
)
#: By unit of a quantity, how its limits may be written: units of the same kind, in that unit.
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "tok/s": {"tok/s": 1.0},
    "ms": {"us": 1e-3, "ms": 1.0, "s": 1e3},
    "J/token": {"mJ/token": 1e-3, "J/token": 1.0},
    "W": {"mW": 1e-3, "W": 1.0},
    "GiB": {
        **{f"{prefix}B": 1000.0**power / 2**30 for power, prefix in enumerate("kMGT", 1)},
        **{f"{prefix}iB": 1024.0**power / 2**30 for power, prefix in enumerate("KMGT", 1)},
    },
    RATIO: {RATIO: 1.0},
}
_KNOWN_UNITS: Final = frozenset({"%", "nats", "tokens", *chain.from_iterable(_UNITS.values())})
#: For these, a verdict is shown in the unit of the limit.
_KEPT_AS_WRITTEN: Final = frozenset({"GiB"})
_EXAMPLES: Final = {
    "tok/s": '"40 tok/s", or 40.0',
    "ms": '"250 ms", "1.5 s" or 250.0, which is in ms',
    "J/token": '"0.5 J/token", "20 mJ/token" or 0.5, which is in J',
    "W": '"8 W", or 8.0',
    "GiB": '"3 GiB", "500 MB" or 3.0, which is in GiB',
    RATIO: 'a factor such as 1.5, or "40%"',
}

_WORDS: Final[Mapping[Operator, str]] = {
    "<": "below",
    "<=": "at most",
    ">": "above",
    ">=": "at least",
}
#: By operator: the evidence for it, and against it.
_SHOWN: Final[Mapping[Operator, tuple[_Shown, _Shown]]] = {
    "<": (Estimate.shown_below, Estimate.shown_at_least),
    "<=": (Estimate.shown_at_most, Estimate.shown_above),
    ">": (Estimate.shown_above, Estimate.shown_at_most),
    ">=": (Estimate.shown_at_least, Estimate.shown_below),
}

_LARGEST_FRACTION: Final = 1e6
#: The smallest limit of a change, a fraction: noise and rounding would decide below it.
LEAST_LIMIT: Final = 1e-6


def judge_limits(estimate: Estimate, limits: Limits, subject: Subject) -> Verdict:
    """Judge the assertion that a quantity is within one or two limits, in its unit.

    Two limits are two one-sided tests: PASS if both are shown true, FAIL if either is shown false.
    """
    low, high = ends_of(limits)
    outcome = outcome_of(
        holds=all(_SHOWN[limit.operator][0](estimate, limit.value) for limit in limits),
        broken=any(_SHOWN[limit.operator][1](estimate, limit.value) for limit in limits),
    )
    values = tuple(limit.value for limit in limits)
    return subject.verdict(
        outcome,
        WithinLimits(limits=limits),
        figures=(JudgedFigure(subject.name, estimate, low, high),),
        advice=advice_for(outcome, subject, [((subject.name, estimate), values)]),
    )


def judge_limit(estimate: Estimate, operator: Operator, limit: float, subject: Subject) -> Verdict:
    """Judge the assertion that a quantity is above, or below, a limit in its unit."""
    return judge_limits(estimate, (Limit(operator, limit, estimate.unit),), subject)


def judge_below(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the assertion that a quantity is below `limit` (in its unit)."""
    return judge_limit(estimate, "<", limit, subject)


def judge_above(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the assertion that a quantity is above `limit` (in its unit)."""
    return judge_limit(estimate, ">", limit, subject)


def judge_within(
    estimate: Estimate,
    subject: Subject,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Judge the assertion that a quantity is within limits (in its unit); one must be given."""
    low = -math.inf if at_least is None else at_least
    high = math.inf if at_most is None else at_most
    if (at_least is None and at_most is None) or not low <= high:
        raise ValueError(f"{subject.name}: nothing lies from {at_least} to {at_most}")
    ends: tuple[tuple[Operator, float | None], ...] = ((">=", at_least), ("<=", at_most))
    limits = tuple(Limit(op, end, estimate.unit) for op, end in ends if end is not None)
    return judge_limits(estimate, limits, subject)


def ends_of(limits: Limits) -> Accepted:
    """The lower and the upper limit, None if there is none."""
    ends = {limit.is_upper: limit.value for limit in limits}
    return ends.get(False), ends.get(True)


def limits_text(limits: Limits) -> str:
    """Limits in words: ``at least 1.5x``, ``at least 1.5x and at most 1.8x``."""
    return " and ".join(
        f"{_WORDS[one.operator]} {limit_text(one.value, one.unit)}" for one in limits
    )


def read_limit(
    operator: Operator, given: object, unit: str, *, where: str, may_be_negative: bool = False
) -> Limit:
    """Read a limit of a quantity: a number in its unit, or a text with a unit of the same kind.

    The operator compares the quantity with it. `where` names the comparison in an error.

    Raises:
        ConfigError: it is no number, is of another unit, or no quantity of the kind can meet it.
    """
    if unit in {CHANGE, SHARE}:
        fraction = parse_percent(given, where=where, negative=may_be_negative)
        return Limit(operator, fraction, unit)
    value, written = math.nan, unit
    if isinstance(given, str):
        if match := _QUANTITY.fullmatch(given.strip()):
            value, written = float(match["number"]), match["unit"] or unit
    elif isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    if unit == RATIO and written == "%":
        limit = Limit(operator, value / 100, SHARE)
    else:
        scale = _UNITS.get(unit, {unit: 1.0}).get(written, math.nan)
        keeps = unit in _KEPT_AS_WRITTEN and math.isfinite(scale) and scale != 1
        kept = (value, written, 1 / scale) if keeps else (value * scale, unit, 1.0)
        limit = Limit(operator, *kept)
    if not math.isfinite(limit.value) or (limit.value <= 0 and not may_be_negative):
        raise _not_a_limit(given, unit, where, written)
    return limit


def _not_a_limit(given: object, unit: str, where: str, written: str) -> ConfigError:
    wanted = unit or "a plain number"
    is_other = isinstance(given, str) and written != unit and written in _KNOWN_UNITS
    reason = f"{wanted} cannot be compared with {written}" if is_other else (
        f"{shown(given)} is no limit in {wanted}, which is above 0"
    )  # fmt: skip
    return ConfigError(
        f"{where}: {reason}",
        why="a limit in another unit would judge another quantity",
        remedy=f"write {_EXAMPLES.get(unit, 'a number such as 1.5')}",
    )


def parse_percent(
    value: object, *, where: str, negative: bool = False, of_whole: bool = False
) -> float:
    """A share as a fraction: 0.01 from ``"1%"`` or ``0.01``.

    A number from 1 on needs a percent sign, because 5 could mean 5 % or five times as much, if it
    is not a part `of_whole`. A ConfigError names `where` the value is written.
    """
    fraction, is_percent = math.nan, False
    if isinstance(value, str):
        if match := _SHARE.fullmatch(value.strip()):
            is_percent = bool(match["percent"])
            fraction = float(match["number"]) / (100 if is_percent else 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        fraction = value
    smallest = -_LARGEST_FRACTION if negative else 0
    if not smallest <= fraction <= _LARGEST_FRACTION:
        below_zero = "" if negative else ", not below zero"
        raise ConfigError(
            f"{where}: {shown(value)} is not a usable limit",
            why="a bare 1 may mean one percent or all of it",
            remedy=f'write "1%" or the fraction 0.01{below_zero}',
        )
    if abs(fraction) >= 1 and not is_percent:
        multiple = f'; if {100 * fraction:g} % is meant, "{100 * fraction:g}%"'
        raise ConfigError(
            f"{where}: {shown(value)} is not a usable limit: it has no unit",
            why="it could mean percent, or a multiple of the whole",
            remedy=f'write "{fraction:g}%" or {fraction / 100:g}' + multiple * (not of_whole),
        )
    return float(fraction)


def parse_tolerance(value: object, *, where: str) -> float:
    """A change that is accepted and that a test can decide, as a fraction; see `parse_percent`."""
    limit = parse_percent(value, where=where)
    if limit < LEAST_LIMIT:
        raise ConfigError(
            f"{where}: {shown(value)} is too small a limit",
            why="equal builds differ by as much from noise, and equal scores from rounding",
            remedy=f'write "{100 * LEAST_LIMIT:.4f}%" or more',
        )
    return limit
