"""The JSON report of a session or a gate: assertions and measurements as tables, every record."""

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Final

from pytest_asperf.analysis.results import JudgedFigure
from pytest_asperf.config.settings import named_in_session
from pytest_asperf.errors import SETTING_NAMES
from pytest_asperf.records.codec import encode
from pytest_asperf.records.kinds import Noted
from pytest_asperf.records.report import SCHEMA, Meta, Report, row_data
from pytest_asperf.report.lines import first_line
from pytest_asperf.report.measurements import table

#: A report as plain data.
JsonReport = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A verdict without nested objects, for a table."""

    row: int  #: place of its record in the report, from 0
    test: str  #: that noted it
    machine: str  #: name of the machine, if there are several
    subject: str  #: of the verdict
    limit: str  #: the limit in words
    outcome: str  #: the verdict
    source: str  #: where the figures are from
    measured: str  #: the result in words
    figure: str | None = None  #: label of the first figure
    value: float | None = None  #: of the first figure
    low: float | None = None  #: lower bound of its interval
    high: float | None = None  #: upper bound of its interval
    n: int | None = None  #: independent observations that it rests on
    counted: str | None = None  #: the unit of `n`, in the plural
    unit: str | None = None  #: of the figure
    confidence: float | None = None  #: two-sided coverage of the interval
    at_least: float | None = None  #: the limit from below, if there is one
    at_most: float | None = None  #: the limit from above, if there is one
    model: str  #: model spec; this and the next four are the candidate's in a gate
    sha256: str  #: of the model's file
    engine: str  #: library and version
    build: str  #: the user's name for the build
    settings: str  #: the requested settings, `key=value,…`
    advice: str  #: the remedy
    about: str  #: its test's subject: the first of a plugin's labels
    excused: str  #: why it fails no test
    repeat: str  #: the command that measures it again


#: Words of each row, for any kind; a record that has the key keeps its own.
WORDS: Final = (
    *("outcome", "source", "model", "subject", "threshold", "bound"),
    *("measured", "brief", "basis", "why"),
)
#: The columns of an assertion.
COLUMNS: Final = tuple(each.name for each in fields(Assertion))


@contextmanager
def named_as_run(meta: Meta) -> Iterator[None]:
    """Advice in a report of pytest names pytest's options, whoever reads the report."""
    if meta.command.startswith("asperf "):
        yield
        return
    outside = SETTING_NAMES.set(named_in_session)
    try:
        yield
    finally:
        SETTING_NAMES.reset(outside)


def document(report: Report) -> JsonReport:
    """The report as plain data."""
    with named_as_run(report.meta):
        return _document(report)


def _document(report: Report) -> JsonReport:
    extra = {"gate": report.gate, "nightly": report.nightly}
    return {
        "schema": SCHEMA,
        "meta": encode(report.meta),
        "headline": list(report.headline),
        **{key: encode(value) for key, value in extra.items() if value},
        "assertions": encode(assertions(report.rows, report.meta)),
        "measurements": encode(table(report.rows)),
        "rows": [_row(noted) for noted in report.rows],
    }


def _row(noted: Noted) -> JsonReport:
    """A record as plain data, with the fields that a reader needs first in words."""
    line = first_line(noted)
    words: JsonReport = {key: getattr(line, key) for key in WORDS}
    return words | row_data(noted)


def serialise(report: Mapping[str, object]) -> bytes:
    """The report as a file."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def assertions(rows: Iterable[Noted], meta: Meta | None) -> list[Assertion]:
    """The verdicts among records, for a table; without a session's facts they name no command."""
    return [
        _assertion(n, noted, meta) for n, noted in enumerate(rows) if noted.record.outcome != ""
    ]


def _assertion(number: int, noted: Noted, meta: Meta | None) -> Assertion:
    line = first_line(noted)
    ran = dict(line.facts)
    made = Assertion(
        row=number,
        test=noted.test,
        machine=noted.machine,
        subject=line.subject,
        limit=line.threshold,
        outcome=line.outcome,
        source=line.source,
        measured=line.measured,
        model=_ran(ran, "model"),
        sha256=_ran(ran, "sha256"),
        engine=_ran(ran, "engine"),
        build=_ran(ran, "build"),
        settings=_ran(ran, "settings"),
        advice=line.advice,
        about=next(iter(line.about.values()), ""),
        excused=line.excused,
        repeat="" if meta is None else repeat(noted.test, meta),
    )
    return _with_figure(made, line.figures[0]) if line.figures else made


def _with_figure(made: Assertion, figure: JudgedFigure) -> Assertion:
    of = figure.estimate
    low, high = (bound if math.isfinite(bound) else None for bound in (of.low, of.high))
    return replace(
        made,
        figure=figure.label,
        value=of.point,
        low=low,
        high=high,
        n=of.n,
        counted=of.counted,
        unit=of.unit,
        confidence=of.confidence,
        at_least=figure.at_least,
        at_most=figure.at_most,
    )


def repeat(test: str, meta: Meta) -> str:
    """The command that measures this again: of a gate, all of it."""
    words = ("asperf", "gate") if meta.command.startswith("asperf gate") else ("pytest", test)
    return shlex.join([*words, *meta.options])


def _ran(ran: Mapping[str, str], label: str) -> str:
    """A fact of the run record; for a gate, the candidate's."""
    return ran.get(label) or ran.get(f"candidate {label}") or ""
