"""Rows for pytest-benchmark's table and files, so that dashboards made for it keep working."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.analysis.facts import Ran
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.records.codec import encode
from pytest_asperf.records.kinds import (
    AnyRecord,
    Noted,
    RunFacts,
    SpeculationRecord,
    ThroughputRecord,
    ran_of,
)
from pytest_asperf.report.lines import facts_of
from pytest_asperf.report.measurements import Run, VariantRun, entries
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import claim_text

#: In front of a row's full name, where pytest-benchmark's own have the path of a test.
_PREFIX: Final = "asperf::"
_TWO_SESSIONS: Final = (
    "this comparison of two sessions cannot distinguish a slower build from a slower machine: "
    "`asperf gate BASE CAND` and the gate fixture can, because they run both builds in pairs"
)


@dataclass(frozen=True)
class _Origin:
    """The attributes that pytest-benchmark copies from its fixture into a row's metadata."""

    name: str
    fullname: str
    param: str
    params: dict[str, str]
    extra_info: dict[str, object]
    group: str = "asperf"
    cprofile_stats: None = None
    has_error: bool = False


@dataclass(frozen=True)
class _Timed:
    """One timed quantity: a workload on a model, or one variant of a comparison."""

    workload: str
    model: str
    settings: Mapping[str, object]
    runs_ns: Iterable[int]
    variant: str = ""
    info: Mapping[str, object] = field(default_factory=dict)

    def origin(self, ran: Mapping[str, str]) -> _Origin:
        """Its name and its subject."""
        settings = {key: str(value) for key, value in self.settings.items()}
        variants = {"variant": self.variant} if self.variant else {}
        what = {"workload": self.workload, "model": self.model}
        param = ",".join(
            [self.model, *variants.values(), *(f"{key}={value}" for key, value in settings.items())]
        )
        name = f"{self.workload}[{param}]"
        info = {**what, **variants, **self.info, "ran": dict(ran)}
        return _Origin(name, _PREFIX + name, param, {**what, **variants, **settings}, info)


def add_rows(session: Any, rows: Iterable[Noted]) -> None:
    """Add every timed quantity to pytest-benchmark's report, in seconds per run.

    Each is one row: the first time that it is measured. Its name does not contain the test's, so
    that it stays equal for any order of tests. BenchmarkSessions of versions 4 and 5 accept the
    rows.
    """
    if session.disabled or session.skip:
        return
    metadata: Any = importlib.import_module("pytest_benchmark.stats").Metadata
    known = {measurement.fullname for measurement in session.benchmarks}
    for row in rows:
        for timed in _timed(row):
            origin = timed.origin(dict(facts_of(row.record)))
            if origin.fullname in known:
                continue
            known.add(origin.fullname)
            benchmark = metadata(origin, iterations=1, options={})
            for run_ns in timed.runs_ns:
                benchmark.update(run_ns / 1e9)
            session.benchmarks.append(benchmark)


def comparison_note(session: Any) -> str:
    """The limits of a comparison with an earlier session; empty if none of our rows is in it."""
    ours = {row.fullname for row in session.benchmarks if row.fullname.startswith(_PREFIX)}
    earlier = (session.compared_mapping or {}).values()
    return _TWO_SESSIONS if any(ours & saved.keys() for saved in earlier) else ""


def _timed(noted: Noted) -> Iterator[_Timed]:
    record, info = noted.record, dict[str, object]()
    if isinstance(record, Verdict):
        if record.outcome == "INVALID":  # times of other work than the requested one
            return
        measured = in_words(record).measured
        info = {"assertion": claim_text(record), "outcome": record.outcome, "measured": measured}
    elif isinstance(record, ThroughputRecord):
        info = {"rate": encode(record.estimate), "loads": record.loads, "sha256": record.ran.sha256}
    elif isinstance(record, SpeculationRecord):
        info = {"assertion": "SD gain", "outcome": "", "measured": record.gain.text()}
    for entry, ran in zip(entries(noted), _variants(record), strict=False):
        if runs_ns := [ns for run in entry.runs if (ns := _run_ns(run))]:
            yield _Timed(entry.workload, entry.model, ran.settings, runs_ns, entry.variant, info)


def _variants(record: AnyRecord) -> tuple[Ran, ...]:
    if isinstance(record, SpeculationRecord) and record.comparison:
        return record.comparison.ran
    return ran_of(record)


def _run_ns(run: Run) -> int:
    """Time of a run, all of its parts; 0 if none was timed."""
    if isinstance(run, RunFacts):
        return run.elapsed_ns
    return (run.elapsed_ns or 0) * run.parts if isinstance(run, VariantRun) else 0
