"""A report in GitHub's Markdown, for a pull request: rates as llama-bench's, and assertions.

Names come from model files, engines and branches: each is escaped, bounded, and stays in its
column.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.errors import printable
from pytest_asperf.records.kinds import facts_of_builds
from pytest_asperf.report.lines import Line
from pytest_asperf.report.measurements import Entry
from pytest_asperf.report.report_data import OUTCOMES, ReportData
from pytest_asperf.report.row_names import Ran, difference

_MARKS: Final = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️", NOT_RUN: "⚠️"}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#!|~&@:$])")
_LONGEST: Final = 400
#: More notes, or lines of one, would hide the tables.
_MOST_NOTES: Final = 30
_MOST_LINES: Final = 40
_RATES: Final = ("model", "size", "params", "backend", "threads", "test", "t/s", "90 %", "verdict")
_CLAIMS: Final = ("verdict", "assertion", "measured", "limit", "from")
_OTHERS: Final = ("model", "measured", "value", "from")
_RATE: Final = "tok/s"


def markdown(reports: Sequence[ReportData]) -> bytes:
    """The Markdown of one or more reports."""
    return "\n".join(line for report in reports for line in _report(report, reports)).encode()


def escape(text: object) -> str:
    """Any text as Markdown that shows it on one line, in a table too."""
    return _SPECIAL.sub(r"\\\1", printable(text, _LONGEST))


def _report(report: ReportData, reports: Sequence[ReportData]) -> Iterator[str]:
    claims = sorted(report.claims, key=lambda claim: OUTCOMES.index(claim.outcome))
    counts = Counter(claim.outcome for claim in claims)
    answer = ", ".join(f"{n} {word}" for word, n in counts.items()) or "no assertion was judged"
    name = f"{escape(report.name)}\\: " if len(reports) > 1 else ""
    yield f"### {_MARKS[claims[0].outcome] if claims else '❔'} {name}{answer}"
    yield ""
    yield from (f"{escape(line)}  " for line in report.headline)
    yield ""
    claimed = _claimed(report)
    # Facts that several tests share; each of them notes them.
    yield from _table(_RATES, dict.fromkeys(_rates(report, claimed)))
    shown = {id(claim) for claim in claimed.values()}
    yield from _table(_CLAIMS, (_claim(claim) for claim in claims if id(claim) not in shown))
    yield from _table(_OTHERS, dict.fromkeys(map(_other, report.measurements)))
    open_ = [claim for claim in claims if claim.outcome != "PASS"]
    for claim in open_[:_MOST_NOTES]:
        yield from _note(claim)
    if len(open_) > _MOST_NOTES:
        yield from (f"{len(open_) - _MOST_NOTES} more assertions did not pass.", "")
    yield from _table(("what ran", "", "candidate, if it differs"), _ran(report.claims))
    yield from (f"{escape(label)}: {escape(fact)}  " for label, fact in report.facts)
    yield ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = [f"| {' | '.join(map(escape, row))} |" for row in rows if row]
    if lines:
        yield from (f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines, "")


def _claimed(report: ReportData) -> dict[tuple[object, ...], Line]:
    """The assertions on a rate that was measured, by test and interval."""
    return {
        (claim.test, of.point, of.low, of.high): claim
        for claim in report.claims
        if len(claim.figures) == 1 and (of := claim.figures[0].estimate).unit == _RATE
    }


def _rates(
    report: ReportData, claimed: Mapping[tuple[object, ...], Line]
) -> Iterator[tuple[str, ...]]:
    by_row = {claim.row: claim for claim in report.assertion_table}
    rates = [record for record in report.measured_table if record.unit == _RATE]
    alike: dict[tuple[object, ...], list[Ran]] = {}
    for record in rates:
        alike.setdefault(_named(record), []).append(_facts(record))
    for record in rates:
        claim = claimed.get((record.test, record.value, record.low, record.high))
        verdict = f"{_MARKS[claim.outcome]} {claim.outcome}, {claim.threshold}" if claim else ""
        if not claim and record.row in by_row:
            outcome = by_row[record.row].outcome
            verdict = f"{_MARKS[outcome]} {outcome}, see below"
        differs = difference(_facts(record), alike[_named(record)])
        yield (*_llama_bench(record, differs), verdict)


def _named(record: Entry) -> tuple[object, ...]:
    """By the table's name for a record."""
    return record.model, record.backend, record.threads, record.workload, record.variant


def _facts(record: Entry) -> Ran:
    requested = record.settings.replace(",", ", ")
    return ("requested", requested), ("engine", record.engine), ("sha256", record.sha256)


def _llama_bench(record: Entry, differs: str) -> Iterator[str]:
    """The columns of llama-bench, and the interval; similar rows have their difference in them."""
    size, params = record.size_bytes, record.n_params
    name = record.title or record.model
    yield f"{name} ({record.model})" if record.title else name
    yield f"{size / 2**20:.2f} MiB" if size and size < 2**30 else f"{(size or 0) / 2**30:.2f} GiB"
    yield "" if not params else f"{params / 1e6:.2f} M" if params < 1e9 else f"{params / 1e9:.2f} B"
    yield record.backend
    yield "" if record.threads is None else str(record.threads)
    yield ", ".join(filter(None, (f"{record.workload} {record.variant}".strip(), differs)))
    yield "" if record.value is None else f"{record.value:.2f}"
    known = record.low is not None and record.high is not None
    yield f"{record.low:.2f} to {record.high:.2f}" if known else ""


def _claim(claim: Line) -> tuple[str, ...]:
    word = f"{_MARKS[claim.outcome]} {claim.outcome}"
    about = (f"{name}: {text}" for name, text in claim.about.items())
    what = "; ".join((claim.subject, *about))
    origin = claim.source if claim.source != "live" else ""
    basis = ", ".join(filter(None, (claim.basis, origin)))
    return word, what, claim.measured, claim.threshold, basis


def _other(found: Line) -> tuple[str, ...]:
    """A measurement that is no rate; one that is has a row already."""
    if found.estimate is not None and found.estimate.unit == _RATE:
        return ()
    return found.model, found.subject, found.measured, found.basis


def _note(claim: Line) -> Iterator[str]:
    """An assertion's reason and remedy, folded; no text can end an indented block."""
    head = printable(f"{claim.outcome} {claim.subject}: {claim.measured}", _LONGEST)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        head = head.replace(sign, entity)
    lines = [*claim.details, *([f"what to do: {claim.advice}"] if claim.advice else [])]
    lines += [f"again: {claim.repeat}"]
    code = [f"    {printable(line, _LONGEST)}" for line in lines[-_MOST_LINES:]]
    yield from (f"<details><summary>{head}</summary>", "", *code, "", "</details>", "")


def _ran(claims: Sequence[Line]) -> Iterator[tuple[str, str, str]]:
    """The run record's facts, each once; a gate's are side by side, marked if they differ."""
    for label, base, candidate in facts_of_builds(claim.facts for claim in claims):
        differs = base != candidate
        yield (f"{label} (differs)", base, candidate) if differs else (label, base, "")
