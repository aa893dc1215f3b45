"""Levels of one model beside each other: the rate of generation and ΔPPL of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.records.kinds import QuantRecord, ThroughputRecord
from pytest_asperf.report.report_data import Level, LevelSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_asperf.analysis.facts import Ran
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.records.kinds import AnyRecord


def level_sets(records: Iterable[AnyRecord]) -> Iterator[LevelSet]:
    """The models of which two levels or more were scored, one set for each TG workload."""
    rates: dict[str, dict[str, Estimate]] = {}
    ladders: dict[str, list[QuantRecord]] = {}
    for record in records:
        if isinstance(record, QuantRecord):
            ladders.setdefault(record.baseline.model, []).append(record)
        elif isinstance(record, ThroughputRecord) and record.workload.startswith("tg"):
            rates.setdefault(record.workload, {})[record.ran.model] = record.estimate
    for of in ladders.values():
        scored = {record.ran.model: record for record in of}
        by_size = sorted(scored.values(), key=lambda record: -record.size_bytes)
        every = {ran.model: ran for ran in (of[0].baseline, *(record.ran for record in by_size))}
        timed = [workload for workload, by_model in rates.items() if by_model.keys() & every]
        weights = {ran.level for ran in every.values()}
        for workload in timed or [""] if len(scored) > 1 else ():
            by_model = rates.get(workload, {})
            levels = (
                Level(
                    _level(ran, weights),
                    by_model.get(model),
                    scored[model].delta_ppl if model in scored else None,
                )
                for model, ran in every.items()
            )
            title = of[0].ran.name if len(weights) > 1 else _weights(of[0].ran)
            baseline = _level(of[0].baseline, weights)
            yield LevelSet(title, workload, baseline, tuple(levels))


def _weights(ran: Ran) -> str:
    return f"{ran.name}:{ran.level}" if ran.level else ran.name


def _level(ran: Ran, weights: set[str]) -> str:
    """The part of a model's name in which levels differ: of weights, or of KV caches."""
    level = ran.level if len(weights) > 1 else ""
    return " ".join(filter(None, (level, ran.kv and f"KV {ran.kv}"))) or "as it is"
