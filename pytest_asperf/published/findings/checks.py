"""The closed set of checks that a finding may make, each read from its table and judged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Literal, Protocol

from pytest_asperf.analysis.combined_verdict import (
    judge_each,
    judge_implication,
    judge_monotonic,
    judge_pareto,
)
from pytest_asperf.analysis.limit_verdict import Figure, judge_above, judge_below, judge_within
from pytest_asperf.analysis.metrics import Metric
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE
from pytest_asperf.analysis.stats.intervals import shared_confidence
from pytest_asperf.analysis.verdict import Subject, Verdict
from pytest_asperf.config.table import NUMBER, CheckedTable, number
from pytest_asperf.errors import ConfigError
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.findings.terms import FormulaTerm, Term, parse_term, row_of

_DIRECTIONS: Final = ("rising", "falling")
_BETTER: Final = ("higher", "lower")
_PERCENT: Final = number("percent above 0", usable=lambda share: share > 0)


class FindingCheck(Protocol):
    """The assertion of a finding about published figures."""

    def terms(self) -> Iterator[Term]:
        """Its terms."""
        ...

    def judge(self, evidence: Evidence, subject: Subject) -> Verdict:
        """The verdict on the figures."""
        ...


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Every value is above or below a limit, or between two; `within` includes its limits."""

    kind: Literal["below", "above", "within"]
    values: tuple[tuple[str, Term], ...]
    low: float | None
    high: float | None

    def terms(self) -> Iterator[Term]:
        """The values."""
        return (term for _, term in self.values)

    def judge(self, evidence: Evidence, subject: Subject) -> Verdict:
        """Judge each value, the error shared among them."""
        judge = self._judge()
        return judge_each(_estimates(self.values, evidence), judge, subject)

    def _judge(self) -> Callable[..., Verdict]:
        if self.kind == "below" and self.high is not None:
            return partial(judge_below, limit=self.high)
        if self.kind == "above" and self.low is not None:
            return partial(judge_above, limit=self.low)
        return partial(judge_within, at_least=self.low, at_most=self.high)


@dataclass(frozen=True, slots=True)
class Monotonic:
    """Values rise, or fall, from each to the next."""

    values: tuple[tuple[str, Term], ...]
    direction: Literal["rising", "falling"]

    def terms(self) -> Iterator[Term]:
        """The values."""
        return (term for _, term in self.values)

    def judge(self, evidence: Evidence, subject: Subject) -> Verdict:
        """Judge the steps, the error shared among them."""
        confidence = shared_confidence(DECISION_CONFIDENCE, len(self.values) - 1)
        steps = [
            evidence.estimate(FormulaTerm("difference", (b, a)), confidence)
            for (_, a), (_, b) in pairwise(self.values)
        ]
        labels = [label for label, _ in self.values]
        return judge_monotonic(labels, steps, subject, direction=self.direction)


@dataclass(frozen=True, slots=True)
class Pareto:
    """No other candidate is as good as `chosen` in every objective and better in one.

    `candidates` has a value for each objective, and `better` names that objective's direction.
    """

    chosen: str
    candidates: tuple[tuple[str, tuple[Term, ...]], ...]
    objectives: tuple[str, ...]
    better: tuple[Literal["higher", "lower"], ...]

    def terms(self) -> Iterator[Term]:
        """Every candidate's values."""
        return (term for _, terms in self.candidates for term in terms)

    def judge(self, evidence: Evidence, subject: Subject) -> Verdict:
        """Judge the differences from the chosen candidate, the error shared among them."""
        candidates = dict(self.candidates)
        own = candidates.pop(self.chosen)
        confidence = shared_confidence(DECISION_CONFIDENCE, len(candidates) * len(own))
        differences = {
            name: [
                evidence.estimate(FormulaTerm("difference", pair), confidence)
                for pair in zip(terms, own, strict=True)
            ]
            for name, terms in candidates.items()
        }
        metrics = [
            Metric(name, "%", better)
            for name, better in zip(self.objectives, self.better, strict=True)
        ]
        return judge_pareto(differences, metrics, subject)


@dataclass(frozen=True, slots=True)
class Implication:
    """There is an effect where a quantity reaches a limit, and none if it does not."""

    cases: tuple[tuple[str, Term, Term], ...]
    limit: float

    def terms(self) -> Iterator[Term]:
        """The deciding quantities and the effects."""
        return (term for _, *terms in self.cases for term in terms)

    def judge(self, evidence: Evidence, subject: Subject) -> Verdict:
        """Judge each case, the error shared among them."""
        confidence = shared_confidence(DECISION_CONFIDENCE, 2 * len(self.cases))
        cases = [
            (label, evidence.estimate(where, confidence), evidence.estimate(effect, confidence))
            for label, where, effect in self.cases
        ]
        return judge_implication(cases, self.limit, subject)


def parse_check(place: CheckedTable) -> FindingCheck:
    """The check that a table means; a ConfigError names file, finding and key."""
    return _KINDS[place.choice("kind", _KINDS)](place)


def _limits(place: CheckedTable) -> FindingCheck:
    kind: Literal["below", "above", "within"] = place.values["kind"]
    keys = ("at_least", "at_most") if kind == "within" else ("limit",)
    place.only(("kind", "values", "labels", *keys))
    given = [place.get(key, NUMBER) for key in keys]
    if all(number is None for number in given):
        place.refuse(keys[0], "write the limit, a number in the figures' unit")
    low, high = given if kind == "within" else (given[0], given[0])
    if low is not None and high is not None and low > high:
        place.refuse("at_least", "write at_least <= at_most")
    return CheckLimits(kind, _values(place), low, high)


def _monotonic(place: CheckedTable) -> FindingCheck:
    place.only(("kind", "values", "labels", "direction"))
    direction = place.choice("direction", _DIRECTIONS)
    return Monotonic(_values(place, at_least=2), "rising" if direction == "rising" else "falling")


def _compared(place: CheckedTable) -> FindingCheck:
    """Read `equal` and `proportional`: ratios that lie within a share of 1, or of the first one.

    Both become limits on percentages, so that one judgement serves all.
    """
    kind = place.values["kind"]
    place.only(("kind", "values", "to", "labels", "within"))
    share = place.need("within", _PERCENT)
    values, others = _values(place), _terms(place, "to")
    if len(values) != len(others):
        place.refuse("to", f"name {len(values)} terms, one for each of `values`")
    pairs = [
        (label, FormulaTerm("ratio", (a, b))) for (label, a), b in zip(values, others, strict=True)
    ]
    if kind == "proportional":
        (_, first), *rest = pairs
        compared = [(label, FormulaTerm("percent_change", (ratio, first))) for label, ratio in rest]
    else:
        compared = [(label, FormulaTerm("percent_change", ratio.of)) for label, ratio in pairs]
    if not compared:
        place.refuse("values", "name two or more, to compare")
    return CheckLimits("within", tuple(compared), -share, share)


def _pareto(place: CheckedTable) -> FindingCheck:
    place.only(("kind", "chosen", "candidates", "objectives", "better"))
    table = place.inner("candidates", place.values.get("candidates"))
    objectives, better = place.texts("objectives"), place.texts("better")
    if len(better) != len(objectives) or not better or not set(better) <= set(_BETTER):
        place.refuse("better", "write higher or lower for each objective")
    candidates = tuple((name, _terms(table, name)) for name in table.values)
    for name, terms in candidates:
        if len(terms) != len(objectives):
            table.refuse(name, "name one term for each objective")
    chosen = place.choice("chosen", [name for name, _ in candidates])
    if len(candidates) < 2:
        place.refuse("candidates", "name two candidates or more")
    directions: list[Literal["higher", "lower"]] = [
        "higher" if word == "higher" else "lower" for word in better
    ]
    return Pareto(chosen, candidates, objectives, tuple(directions))


def _implication(place: CheckedTable) -> FindingCheck:
    place.only(("kind", "where", "effect", "labels", "at_least"))
    limit = place.need("at_least", NUMBER)
    wheres, effects = _terms(place, "where"), _terms(place, "effect")
    if len(wheres) != len(effects):
        place.refuse("effect", f"name {len(wheres)} terms, one for each of `where`")
    labels = _labels(place, effects)
    return Implication(tuple(zip(labels, wheres, effects, strict=True)), limit)


_KINDS: Final[Mapping[str, Callable[[CheckedTable], FindingCheck]]] = {
    "below": _limits,
    "above": _limits,
    "within": _limits,
    "monotonic": _monotonic,
    "equal": _compared,
    "proportional": _compared,
    "pareto": _pareto,
    "implication": _implication,
}


def _estimates(values: Sequence[tuple[str, Term]], evidence: Evidence) -> tuple[Figure, ...]:
    confidence = shared_confidence(DECISION_CONFIDENCE, len(values))
    return tuple((label, evidence.estimate(term, confidence)) for label, term in values)


def _values(place: CheckedTable, *, at_least: int = 1) -> tuple[tuple[str, Term], ...]:
    terms = _terms(place, "values", at_least=at_least)
    return tuple(zip(_labels(place, terms), terms, strict=True))


def _terms(place: CheckedTable, key: str, *, at_least: int = 1) -> tuple[Term, ...]:
    value = place.values.get(key)
    if not isinstance(value, list) or len(value) < at_least:
        place.refuse(key, f"write a list of at least {at_least} terms")
    return tuple(parse_term(term, place, key) for term in value)


def _labels(place: CheckedTable, terms: Sequence[Term]) -> tuple[str, ...]:
    given = place.texts("labels")
    if given and len(given) != len(terms):
        raise ConfigError(
            f"{place}: {len(given)} labels for {len(terms)} values",
            why="they distinguish the values for a reader",
            remedy="give one label for each, or none",
        )
    default = tuple(map(row_of, terms)) if len(terms) > 1 else ("",)
    return given or default
