"""Levels of one model beside each other: the rate of generation and ΔPPL of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_asperf.report.report_data import Level, LevelSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.report.rows import ReportRow

    Read = Callable[[Mapping[str, Any]], Estimate]


@dataclass(slots=True)
class _Found:
    """What the rows of one model have, by level."""

    baseline: str = ""
    deltas: dict[str, Estimate] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    rates: dict[str, dict[str, Estimate]] = field(default_factory=dict)

    def sets(self, model: str) -> Iterator[LevelSet]:
        for workload, rates in (self.rates or {"": {}}).items():
            names = dict.fromkeys((self.baseline, *self.deltas, *rates))
            # The baseline's own size is not in a row; it is what the others were made of.
            names = dict.fromkeys(
                sorted(names, key=lambda name: (name != self.baseline, -self.sizes.get(name, 0)))
            )
            levels = tuple(Level(n, rates.get(n), self.deltas.get(n)) for n in names)
            yield LevelSet(model, workload, self.baseline, levels)


def level_sets(rows: Iterable[ReportRow], read: Read) -> list[LevelSet]:
    """The models of which two levels or more were scored, one set for each TG workload."""
    models: dict[str, _Found] = {}
    for row in rows:
        model, level = _split(row.model)
        found = models.setdefault(model, _Found())
        if "delta_ppl" in row.raw:
            found.deltas[level] = read(row.raw["delta_ppl"])
            found.sizes[level] = float(row.raw["size_bytes"])
            found.baseline = _split(row.raw["baseline"]["model"])[1]
        elif str(row.raw.get("workload", "")).startswith("tg"):
            found.rates.setdefault(row.raw["workload"], {})[level] = read(row.raw["estimate"])
    known = [(model, found) for model, found in models.items() if len(found.deltas) > 1]
    return [levels for model, found in known for levels in found.sets(model)]


def _split(title: str) -> tuple[str, str]:
    """A model's name and its level, of `name:LEVEL` or `name KV type`."""
    weights, _, cache = title.partition(" KV ")
    name, colon, level = weights.rpartition(":")
    if cache:
        return weights, f"KV {cache}"
    return (name, level) if colon else (weights, "as it is")
