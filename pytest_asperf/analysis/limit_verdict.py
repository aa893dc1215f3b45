"""Verdicts on one quantity against a limit, and how a limit is read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.advice import advice_for, outcome_of, why_open
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE, Estimate, limit_text
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.errors import ConfigError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.analysis.verdict import Accepted

_SHARE: Final = re.compile(r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))\s*(?P<percent>%?)", re.ASCII)

_QUANTITY: Final = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[A-Za-z/]+)", re.ASCII)

_LARGEST_FRACTION: Final = 1e6


def judge_below(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the claim that a quantity is below `limit` (in its unit)."""
    return _judge(
        estimate,
        subject,
        threshold=f"below {limit_text(limit, estimate.unit)}",
        bound=bound_text(f"< {limit_text(limit, estimate.unit)}", estimate.unit),
        accepted=(None, limit),
        holds=estimate.shown_below(limit),
        broken=estimate.shown_at_least(limit),
    )


def judge_above(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the claim that a quantity is above `limit` (in its unit)."""
    return _judge(
        estimate,
        subject,
        threshold=f"above {limit_text(limit, estimate.unit)}",
        bound=bound_text(f"> {limit_text(limit, estimate.unit)}", estimate.unit),
        accepted=(limit, None),
        holds=estimate.shown_above(limit),
        broken=estimate.shown_at_most(limit),
    )


def judge_within(
    estimate: Estimate,
    subject: Subject,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Judge the claim that a quantity lies within limits (in its unit); one must be given."""
    low = -math.inf if at_least is None else at_least
    high = math.inf if at_most is None else at_most
    if (at_least is None and at_most is None) or not low <= high:
        raise ConfigError(
            f"{subject.name}: at_least={at_least}, at_most={at_most} is not a range",
            why="such a claim would always or never hold",
            remedy="give at_least, at_most, or both with at_least <= at_most",
        )
    return _judge(
        estimate,
        subject,
        threshold=range_text(at_least, at_most, estimate.unit),
        bound=bound_text(_span_text(at_least, at_most, estimate.unit), estimate.unit),
        accepted=(at_least, at_most),
        holds=estimate.shown_at_least(low) and estimate.shown_at_most(high),
        broken=estimate.shown_below(low) or estimate.shown_above(high),
    )


def range_text(at_least: float | None, at_most: float | None, unit: str) -> str:
    """Limits as a threshold: ``at least 1.5x and at most 1.8x``."""
    bounds = (("at least", at_least), ("at most", at_most))
    return " and ".join(
        f"{word} {limit_text(bound, unit)}" for word, bound in bounds if bound is not None
    )


def bound_text(threshold: str, unit: str) -> str:
    """A threshold beside a figure that has the unit."""
    return threshold if unit in {CHANGE, SHARE, RATIO} else threshold.replace(f" {unit}", "")


def _span_text(at_least: float | None, at_most: float | None, unit: str) -> str:
    if at_least is not None and at_most is not None:
        return f"{limit_text(at_least, unit)} to {limit_text(at_most, unit)}"
    sign, bound = ("≤", at_most) if at_least is None else ("≥", at_least)
    return "" if bound is None else f"{sign} {limit_text(bound, unit)}"


@dataclass(frozen=True, slots=True)
class LimitForm:
    """How the limits of a claim are written.

    Attributes:
        claim: the assertion that takes them.
        what: what each is, such as `a time`.
        units: by name, in the unit that is judged.
        example: how to write one.
        plain: what a number without a unit is in.
    """

    claim: str
    what: str
    units: Mapping[str, float]
    example: str
    plain: float = 1.0

    def read(self, limit: object, name: str) -> float | None:
        """A limit in the unit that is judged; a ConfigError calls it by the argument's name."""
        if limit is None:
            return None
        value = math.nan
        if isinstance(limit, str):
            match = _QUANTITY.fullmatch(limit.strip())
            if match and match["unit"] in self.units:
                value = float(match["number"]) * self.units[match["unit"]]
        elif isinstance(limit, int | float) and not isinstance(limit, bool):
            value = limit * self.plain
        if not 0 < value < math.inf:
            raise ConfigError(
                f"{self.claim}: {name}: {shown(limit)} is not {self.what}",
                why="a limit in another unit would judge another quantity",
                remedy=f"write {self.example}",
            )
        return float(value)


def parse_percent(value: object, *, where: str, negative: bool = False) -> float:
    """A share as a fraction: 0.01 from ``"1%"`` or ``0.01``.

    A number from 1 on needs a percent sign, because 5 could mean 5 % or five times as much. A
    ConfigError names `where` the value is written.
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
            why="a verdict needs to know whether 1 means one percent or all of it",
            remedy=f'write "1%" or the fraction 0.01{below_zero}',
        )
    if abs(fraction) >= 1 and not is_percent:
        raise ConfigError(
            f"{where}: {shown(value)} is not a usable limit: it has no unit",
            why="it could mean percent, or a multiple of the whole",
            remedy=f'write "{fraction:g}%" or {fraction / 100:g}; if {100 * fraction:g} % is '
            f'meant, "{100 * fraction:g}%"',
        )
    return float(fraction)


def _judge(
    estimate: Estimate,
    subject: Subject,
    *,
    threshold: str,
    bound: str,
    accepted: Accepted,
    holds: bool,
    broken: bool,
) -> Verdict:
    outcome = outcome_of(holds=holds, broken=broken)
    limits = tuple(limit for limit in accepted if limit is not None)
    return Verdict(
        outcome,
        subject,
        threshold=threshold,
        measured=estimate.text(apart_from=limits),
        brief=estimate.brief(apart_from=limits),
        bound=bound,
        why=why_open(estimate) if outcome is Outcome.INCONCLUSIVE else "",
        figures=((subject.name, estimate),),
        advice=advice_for(outcome, subject, [((subject.name, estimate), limits)]),
        accepted=(accepted,),
    )
