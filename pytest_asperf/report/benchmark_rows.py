"""Rows for pytest-benchmark's table and files, so that dashboards made for it keep working."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: In front of a row's full name, where pytest-benchmark's own have the path of a test.
_PREFIX = "asperf::"


@dataclass(frozen=True)
class _Origin:
    """The attributes that pytest-benchmark copies from its fixture into a row's metadata."""

    name: str
    fullname: str
    param: str
    params: dict[str, str]
    extra_info: dict[str, Any]
    group: str = "asperf"
    cprofile_stats: None = None
    has_error: bool = False


def add_rows(session: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add throughput measurements to what pytest-benchmark reports, in seconds per run.

    A workload on a model, with the settings asked for, is one row: the first time it is measured.
    Its name does not hold the test's, so that it stays the same whichever test asks first. Its
    BenchmarkSessions of versions 4 and 5 are known to take the rows.
    """
    if session.disabled or session.skip:
        return
    metadata: Any = importlib.import_module("pytest_benchmark.stats").Metadata
    known = {measurement.fullname for measurement in session.benchmarks}
    for row in rows:
        if "workload" not in row["raw"]:
            continue
        origin = _origin(row)
        if origin.fullname in known:
            continue
        known.add(origin.fullname)
        benchmark = metadata(origin, iterations=1, options={})
        for run in row["raw"]["runs"]:
            benchmark.update(run["elapsed_ns"] / 1e9)
        session.benchmarks.append(benchmark)


def _origin(row: Mapping[str, Any]) -> _Origin:
    raw = row["raw"]
    settings = {key: str(value) for key, value in raw["settings"].items()}
    param = ",".join([row["model"], *(f"{key}={value}" for key, value in settings.items())])
    name = f"{raw['workload']}[{param}]"
    return _Origin(
        name,
        _PREFIX + name,
        param,
        {"workload": raw["workload"], "model": row["model"], **settings},
        {
            "workload": raw["workload"],
            "model": row["model"],
            "rate": raw["estimate"],
            "loads": raw["loads"],
            "sha256": raw["sha256"],
            "ran": dict(row["ran"]),
        },
    )
