"""What is assumed of the spread of figures for which none is published: `data/assumed-spread.toml`.

Each assumption names the recorded spreads that justify it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from pytest_asperf.config.table import BOOLEAN, NUMBER, unusable
from pytest_asperf.config.toml_file import open_document

if TYPE_CHECKING:
    from pytest_asperf.published.records import RecordedCell

_FILE = "data/assumed-spread.toml"
_KEYS = ("metrics", "source", "cv", "se", "by_runs", "because")


@dataclass(frozen=True, slots=True)
class AssumedSpread:
    """The spread of figures of a kind.

    Attributes:
        metrics: the metrics that it holds for.
        source: the document that it holds for; empty for all.
        cv: coefficient of variation of one run.
        se: standard error of the figure itself, as a share of it; holds for derived figures too.
        by_runs: whether n counts independent runs, over which the error of a mean falls.
    """

    metrics: frozenset[str]
    source: str
    because: str
    cv: float | None = None
    se: float | None = None
    by_runs: bool = True

    @property
    def is_none(self) -> bool:
        """Whether such figures are counted and do not vary."""
        return self.cv == 0

    def fits(self, cell: RecordedCell) -> bool:
        """Whether it holds for a figure."""
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
