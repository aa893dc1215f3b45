"""Levels of one model beside each other: the rate of generation and ΔPPL of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_asperf.report.report_data import Level, LevelSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.report.rows import ReportRow

    Read = Callable[[Mapping[str, Any]], Estimate]


def level_sets(rows: Iterable[ReportRow], read: Read) -> Iterator[LevelSet]:
    """The models of which two levels or more were scored, one set for each TG workload."""
    rates: dict[str, dict[str, Estimate]] = {}
    deltas: dict[tuple[str, str], dict[str, Estimate]] = {}
    sizes: dict[str, float] = {}
    for row in rows:
        if "delta_ppl" in row.raw:
            ladder = _model(row.model), row.raw["baseline"]["model"]
            deltas.setdefault(ladder, {})[row.model] = read(row.raw["delta_ppl"])
            sizes[row.model] = float(row.raw["size_bytes"])
        elif str(row.raw.get("workload", "")).startswith("tg"):
            rates.setdefault(row.raw["workload"], {})[row.model] = read(row.raw["estimate"])
    for (model, baseline), scored in deltas.items():
        titles = dict.fromkeys((baseline, *sorted(scored, key=lambda title: -sizes[title])))
        timed = [workload for workload, by_title in rates.items() if by_title.keys() & titles]
        for workload in timed or [""] if len(scored) > 1 else ():
            by_title = rates.get(workload, {})
            levels = (Level(_level(t, model), by_title.get(t), scored.get(t)) for t in titles)
            yield LevelSet(model, workload, _level(baseline, model), tuple(levels))


def _model(title: str) -> str:
    """What levels of a model have in common: its name, or of KV caches the weights."""
    weights, _, cache = title.partition(" KV ")
    return weights if cache else title.rpartition(":")[0] or title


def _level(title: str, model: str) -> str:
    return title.removeprefix(model).lstrip(": ") or "as it is"
