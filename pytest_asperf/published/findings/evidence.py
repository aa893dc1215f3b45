"""Estimates from published figures, given their spread and their rounding.

The interval of a single figure is Student's t on the published spread. If none is published, the
spread is assumed (`data/assumed-spread.toml`), so that a finding passes only if it survives that
spread. A figure printed without its raw value may be anything that rounds to it. A result of
several figures uses the extremes over their intervals, the error shared among them (Bonferroni),
which is wider than needed and never too narrow.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.intervals import (
    sd_interval,
    shared_confidence,
    t_quantile,
    z_quantile,
)
from pytest_asperf.config.table import BOOLEAN, NUMBER, unusable
from pytest_asperf.config.text_file import open_document
from pytest_asperf.errors import ConfigError, MeasurementError, shown, suggest
from pytest_asperf.published.findings.terms import (
    FigureTerm,
    FormulaTerm,
    PrintedTerm,
    Term,
    Variation,
    ids_of,
)
from pytest_asperf.published.records import RecordedCell
from pytest_asperf.published.records.formulas import FORMULAS, Formula

_UNITS: Final = {
    **dict.fromkeys(("percent_of", "percent_change", "percent_less", "utilisation"), "%"),
    "ratio": "x",
    "product": "",
    "seconds": "s",
    "ms_from_rate": "ms",
    "extra_ms": "ms",
    "rate_from_ms": "tok/s",
    "speculation": "tok/s",
    "weights_gb": "GB",
}
#: Exact, or no measurement, which a guard reports.
_NOT_SAMPLED: Final = ("specified", "stated", "estimated")
#: Beyond it a number on the log scale has no float.
_LARGEST_LOG: Final = 700.0
#: Expected range of n runs in standard deviations (Tippett, Biometrika 17, 1925).
_RANGE: Final = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 8: 2.847, 10: 3.078}


_FILE: Final = "data/assumed-spread.toml"
_KEYS: Final = ("metrics", "source", "cv", "se", "by_runs", "because")


@dataclass(frozen=True, slots=True)
class AssumedSpread:
    """The spread of figures of a kind."""

    metrics: frozenset[str]  #: the metrics that it applies to
    source: str  #: the document that it applies to; empty for all
    because: str
    cv: float | None = None  #: coefficient of variation of one run
    #: standard error of the figure itself, as a share of it; applies to derived figures too
    se: float | None = None
    by_runs: bool = True  #: whether n counts independent runs, over which the error of a mean falls

    @property
    def is_none(self) -> bool:
        """True if such figures are counted and do not vary."""
        return self.cv == 0

    def fits(self, cell: RecordedCell) -> bool:
        """True if it applies to a figure."""
        own = not self.source or cell.id.startswith(f"{self.source}/")
        return own and cell.metric in self.metrics

    def relative_error(self, n: int) -> float:
        """The standard error of a mean of n runs, as a share of it."""
        return self.se if self.se is not None else (self.cv or 0.0) / math.sqrt(n)

    def __str__(self) -> str:
        if self.se is not None:
            return f"a standard error of {100 * self.se:.3g} %"
        return f"a spread of {100 * (self.cv or 0):.3g} % for one run"


@cache
def assumed_spreads() -> tuple[AssumedSpread, ...]:
    """The assumptions, those for one document first."""
    file = resources.files("pytest_asperf").joinpath(_FILE)
    place = open_document(file.read_text(encoding="utf-8"), _FILE)
    place.only(("schema", "spread"))
    spreads = []
    for entry in place.entries("spread"):
        inner = place.inner("spread", entry)
        inner.only(_KEYS)
        cv, se = inner.get("cv", NUMBER), inner.get("se", NUMBER)
        if (cv is None) == (se is None):
            raise unusable(str(inner), cv, "write exactly one of cv and se")
        by_runs = inner.get("by_runs", BOOLEAN) is not False
        metrics = frozenset(inner.texts("metrics"))
        because = inner.text("because", required=True)
        spreads.append(AssumedSpread(metrics, inner.text("source"), because, cv, se, by_runs))
    return tuple(sorted(spreads, key=lambda spread: not spread.source))


@dataclass(frozen=True, slots=True)
class _Box:
    """A figure with its possible values, and the reason for them."""

    point: float
    low: float
    high: float
    n: int = 1
    counted: str = "figure as printed"
    basis: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The published figures by id, and the assumptions for those without a published spread.

    The first of the assumptions (`spreads`) that fits a figure is used.
    """

    cells: Mapping[str, RecordedCell]
    spreads: tuple[AssumedSpread, ...]

    def cell(self, id: str) -> RecordedCell:  # noqa: A002  # it is what the field is called
        """A figure that is one number; ConfigError for a word or a bound."""
        cell = self.cells[id]
        cell.value  # noqa: B018  # a word or a bound raises
        return cell

    def find(self, id: str, *, where: str) -> RecordedCell:  # noqa: A002  # it is what the field is called
        """The figure that `where` names, of any form; ConfigError with the nearest id."""
        if id in self.cells:
            return self.cells[id]
        raise ConfigError(
            f"{where}: no published figure is called {shown(id, 160)}{suggest(id, self.cells)}",
            why="the statement is about the figure that it names",
            remedy="use source-id/table-id/row/column; [tool.asperf] published_figures adds files",
        )

    def value(self, term: Term) -> float:
        """A term's value without its interval."""
        return self._box(term, DECISION_CONFIDENCE).point

    def estimate(self, term: Term, confidence: float = DECISION_CONFIDENCE) -> Estimate:
        """A term's value with an interval of at least this two-sided confidence."""
        varying = sum(not self._is_certain(id) for id in ids_of(term))  # noqa: A001
        box = self._box(term, shared_confidence(confidence, max(varying, 1)))
        return _estimate(box, self.unit(term), confidence)

    def unit(self, term: Term) -> str:
        """A term's unit."""
        if isinstance(term, FormulaTerm):
            usual = _UNITS[term.name] if term.name in _UNITS else self.unit(term.of[0])
            return term.unit or usual
        return "%" if isinstance(term, Variation) else self.cells[term.id].unit

    def all_cells(self, term: Term) -> Iterator[RecordedCell]:
        """The figures of a term and, of those that are derived, their inputs."""
        if isinstance(term, FormulaTerm):
            for inner in term.of:
                yield from self.all_cells(inner)
            return
        if isinstance(term, PrintedTerm):
            yield self.cells[term.id]
            return
        cell = self.cell(term.id)
        yield cell
        if isinstance(term, FigureTerm) and self._follows_from_others(cell):
            for inner in _derivation(cell).of:
                yield from self.all_cells(inner)

    def _is_certain(self, id: str) -> bool:  # noqa: A002  # it is what the field is called
        cell = self.cells[id]
        assumed = self._assumed(cell)
        return cell.kind == "specified" or (assumed is not None and assumed.is_none)

    def _box(self, term: Term, confidence: float) -> _Box:
        if isinstance(term, FormulaTerm):
            return self._computed(term, confidence)
        if isinstance(term, PrintedTerm):
            return _printed(self.cells[term.id])
        cell = self.cell(term.id)
        if isinstance(term, Variation):
            return _variation(cell, confidence)
        if self._follows_from_others(cell):
            return self._widened(cell, self._computed(_derivation(cell), confidence), confidence)
        return self._measured(cell, confidence)

    def _follows_from_others(self, cell: RecordedCell) -> bool:
        """True if the inputs give more facts than the figure itself."""
        return cell.derivation is not None and cell.kind == "derived" and not _own_spread(cell)

    def _computed(self, term: FormulaTerm, confidence: float) -> _Box:
        formula = FORMULAS[term.name]
        boxes = [self._box(inner, confidence) for inner in term.of]
        try:
            point = formula.compute(*(box.point for box in boxes))
        except ZeroDivisionError:
            figures = ", ".join(ids_of(term))
            raise MeasurementError(
                f"{formula.name} of {figures} divides by zero",
                why="what follows from them has no value",
                remedy="name other figures",
            ) from None
        low, high = _range(formula, boxes)
        counts = [box for box in boxes if box.basis] or boxes
        fewest = min(counts, key=lambda box: box.n)
        basis = tuple(dict.fromkeys(text for box in boxes for text in box.basis))
        # In a range (`span`, a mean of extremes) the point may be outside by rounding alone.
        low, high = min(low, point), max(high, point)
        return _Box(point, low, high, fewest.n, fewest.counted, basis)

    def _measured(self, cell: RecordedCell, confidence: float) -> _Box:
        box = _as_published(cell, confidence)
        has_spread = box.basis or cell.kind in _NOT_SAMPLED
        return box if has_spread else self._widened(cell, box, confidence)

    def _assumed(self, cell: RecordedCell) -> AssumedSpread | None:
        return next((spread for spread in self.spreads if spread.fits(cell)), None)

    def _widened(self, cell: RecordedCell, box: _Box, confidence: float) -> _Box:
        """Widen a figure whose spread is not published by the assumed one."""
        assumed = self._assumed(cell)
        if cell.kind == "derived":
            if assumed is None or assumed.se is None:
                return box
        elif assumed is None:
            basis = (*box.basis, f"nothing is known or assumed of the spread of {cell.metric}")
            return _Box(box.point, -math.inf, math.inf, box.n, box.counted, basis)
        if assumed.is_none:
            return box
        n = 1 if cell.spread.n is None or not assumed.by_runs else cell.spread.n
        half = z_quantile(confidence) * assumed.relative_error(n)
        basis = (*box.basis, f"{assumed} assumed, as no spread is published")
        if assumed.se is not None:
            wider = half * abs(box.point)
            low, high = box.low - wider, box.high + wider
        else:
            low, high = _scaled(box.low, -half), _scaled(box.high, half)
        return _Box(box.point, low, high, box.n, box.counted, basis)


def published_estimate(cell: RecordedCell) -> Estimate:
    """A figure with its published spread; without one, with all values that round to it.

    Nothing is assumed of its spread, unlike in a finding. ConfigError for a word or a bound.
    """
    return _estimate(_as_published(cell, DECISION_CONFIDENCE), cell.unit, DECISION_CONFIDENCE)


def _as_published(cell: RecordedCell, confidence: float) -> _Box:
    point = cell.value if cell.spread.raw is None else cell.spread.raw
    low, high = cell.allowed() if cell.spread.raw is None else (point, point)
    own = None if cell.kind in _NOT_SAMPLED else _own_interval(cell, confidence)
    below, above, *basis = own or (0.0, 0.0)
    return _Box(point, low - below, high + above, *_count(cell), tuple(basis))


def _estimate(box: _Box, unit: str, confidence: float) -> Estimate:
    if box.low == box.high:
        return Estimate.exact(box.point, unit)
    return Estimate(
        box.point,
        box.low,
        box.high,
        box.n,
        method="; ".join(box.basis) or "rounding as printed",
        unit=unit,
        counted=box.counted if math.isfinite(box.high - box.low) else "figures",
        confidence=confidence,
    )


def _range(formula: Formula, boxes: Sequence[_Box]) -> tuple[float, float]:
    """The extremes over all boxes, infinite if one is or where 0 would divide."""
    bounds = [(box.low, box.high) for box in boxes]
    if not all(math.isfinite(bound) for pair in bounds for bound in pair):
        return -math.inf, math.inf
    try:
        # A box with 0 inside has a pole there that its ends do not show.
        formula.over([(0.0, 0.0) if low < 0 < high else (low, high) for low, high in bounds])
        return formula.over(bounds)
    except ZeroDivisionError:
        return -math.inf, math.inf


def _scaled(value: float, log_change: float) -> float:
    """Move a bound by a relative error, a negative value the other way."""
    return value * math.exp(log_change if value >= 0 else -log_change)


def _printed(cell: RecordedCell) -> _Box:
    """A figure as printed, a bound as everything that it allows."""
    printed = cell.printed
    if printed.low is not None and printed.high is not None:
        return _Box(cell.value, *cell.allowed())
    end = printed.high if printed.low is None else printed.low
    if end is None:
        return _Box(cell.value, -math.inf, math.inf)  # rejected as a word
    low = -math.inf if printed.low is None else float(end)
    return _Box(float(end), low, math.inf if printed.high is None else float(end))


def _derivation(cell: RecordedCell) -> FormulaTerm:
    if cell.derivation is None:
        raise ValueError(f"{cell.id} follows from nothing")
    return FormulaTerm(cell.derivation.formula, tuple(map(FigureTerm, cell.derivation.inputs)))


def _own_spread(cell: RecordedCell) -> bool:
    spread = cell.spread
    return spread.interval is not None or spread.se is not None or spread.sd is not None


def _own_interval(cell: RecordedCell, confidence: float) -> tuple[float, float, str] | None:
    """The amounts by which a figure may be too high and too low, and their source."""
    spread, n = cell.spread, cell.spread.n
    if spread.interval is not None and spread.confidence is not None:
        factor = _quantile(n, confidence) / _quantile(n, spread.confidence)
        middle = cell.value if spread.raw is None else spread.raw
        below, above = middle - spread.interval[0], spread.interval[1] - middle
        text = f"from the published {spread.confidence:.0%} interval"
        return max(below * factor, 0.0), max(above * factor, 0.0), text
    if spread.se is not None:
        half = _quantile(n, confidence) * spread.se
        return half, half, "Student's t on the published standard error"
    if n is not None and n > 1:
        sd, text = spread.sd, "Student's t on the published standard deviation"
        if sd is None and spread.observed is not None and n in _RANGE:
            sd = (spread.observed[1] - spread.observed[0]) / _RANGE[n]
            text = "Student's t on the published range"
        if sd is not None:
            return *_on_log_scale(cell, _quantile(n, confidence) * sd / math.sqrt(n)), text
    return None


def _on_log_scale(cell: RecordedCell, half: float) -> tuple[float, float]:
    """An error below and above: a rate or time is positive, however wide its interval."""
    point = abs(cell.value if cell.spread.raw is None else cell.spread.raw)
    if not point:
        return half, half
    share = half / point
    above = math.expm1(share) if share < _LARGEST_LOG else math.inf
    return point * -math.expm1(-share), point * above


def _quantile(n: int | None, confidence: float) -> float:
    return z_quantile(confidence) if n is None or n < 2 else t_quantile(n - 1, confidence)


def _variation(cell: RecordedCell, confidence: float) -> _Box:
    spread = cell.spread
    if spread.sd is None or spread.n is None or spread.n < 2:
        raise ConfigError(
            f"recorded {cell.id}: its runs' standard deviation is not published",
            why="the finding is about how much they vary",
            remedy="name a figure with sd and n >= 2",
        )
    estimate = sd_interval(100 * spread.sd / cell.value, spread.n, confidence, unit="%")
    return _Box(estimate.point, estimate.low, estimate.high, spread.n, "runs", (estimate.method,))


def _count(cell: RecordedCell) -> tuple[int, str]:
    if cell.spread.n is None:
        return 1, "figure, n not published"
    what = "chunks" if cell.metric.startswith("PPL") else "runs"
    return cell.spread.n, "samples" if cell.unit == "W" else what
