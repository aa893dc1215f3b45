"""Rows for pytest-benchmark's table and files, so that dashboards made for it keep working."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.report.measurements import measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: In front of a row's full name, where pytest-benchmark's own have the path of a test.
_PREFIX: Final = "asperf::"
_TWO_SESSIONS: Final = (
    "this comparison of two sessions cannot tell a slower build from a slower machine: "
    "`asperf gate BASE CAND` and the gate fixture can, as both builds take turns"
)


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


@dataclass(frozen=True)
class _Timed:
    """One timed quantity: a workload on a model, and of a comparison one of its sides."""

    workload: str
    model: str
    settings: Mapping[str, object]
    runs_ns: Iterable[int]
    side: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    def origin(self, ran: Mapping[str, str]) -> _Origin:
        """Its name and what it is about."""
        settings = {key: str(value) for key, value in self.settings.items()}
        sides = {"side": self.side} if self.side else {}
        what = {"workload": self.workload, "model": self.model}
        param = ",".join(
            [self.model, *sides.values(), *(f"{key}={value}" for key, value in settings.items())]
        )
        name = f"{self.workload}[{param}]"
        info = {**what, **sides, **self.info, "ran": dict(ran)}
        return _Origin(name, _PREFIX + name, param, {**what, **sides, **settings}, info)


def add_rows(session: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add every timed quantity to what pytest-benchmark reports, in seconds per run.

    Each is one row: the first time that it is measured. Its name does not hold the test's, so that
    it stays the same whichever test asks first. BenchmarkSessions of versions 4 and 5 are known to
    take the rows.
    """
    if session.disabled or session.skip:
        return
    metadata: Any = importlib.import_module("pytest_benchmark.stats").Metadata
    known = {measurement.fullname for measurement in session.benchmarks}
    for row in rows:
        for timed in _timed(row):
            origin = timed.origin(dict(row["ran"]))
            if origin.fullname in known:
                continue
            known.add(origin.fullname)
            benchmark = metadata(origin, iterations=1, options={})
            for run_ns in timed.runs_ns:
                benchmark.update(run_ns / 1e9)
            session.benchmarks.append(benchmark)


def comparison_note(session: Any) -> str:
    """What a comparison with an earlier session cannot tell; empty if none of our rows is in it."""
    ours = {row.fullname for row in session.benchmarks if row.fullname.startswith(_PREFIX)}
    earlier = (session.compared_mapping or {}).values()
    return _TWO_SESSIONS if any(ours & saved.keys() for saved in earlier) else ""


def _timed(row: Mapping[str, Any]) -> Iterator[_Timed]:
    raw = row["raw"]
    if "comparison" in raw:
        if row["outcome"] == "INVALID":  # times of something else than was to be timed
            return
        claim = f"{row['subject']} {row['threshold']}".strip()
        info = {"claim": claim, "outcome": row["outcome"], "measured": row["measured"]}
    else:
        info = {"rate": raw.get("estimate"), "loads": raw.get("loads"), "sha256": raw.get("sha256")}
    for record in measured(row):
        runs_ns = [
            run["elapsed_ns"] * run.get("parts", 1) for run in record["runs"] if "elapsed_ns" in run
        ]
        if runs_ns:
            what = {key: record[key] for key in ("workload", "model", "settings", "side")}
            yield _Timed(**what, runs_ns=runs_ns, info=info)
