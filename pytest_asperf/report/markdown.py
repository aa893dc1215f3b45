"""A report in GitHub's Markdown, for a pull request: rates as llama-bench prints them, and claims.

Names come from model files, engines and branches: each is escaped, bounded, and stays in its cell.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import printable
from pytest_asperf.report.report_data import NOT_RUN, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_asperf.report.report_data import Claim, ReportData

MARKS: Final = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️", NOT_RUN: "⚠️"}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#!|~&@:$])")
_LONGEST: Final = 400
#: More notes, or lines of one, would hide the tables.
_MOST_NOTES: Final = 30
_MOST_LINES: Final = 40
_RATES: Final = ("model", "size", "params", "backend", "threads", "test", "t/s", "90 %", "verdict")
_CLAIMS: Final = ("verdict", "claim", "measured", "limit", "from")
#: What is different from claim to claim, and in the claim's own words.
_OF_A_CLAIM: Final = ("model", "memory", "settings", "logits")
_SIDES: Final = ("baseline ", "candidate ")


def markdown(reports: Sequence[ReportData]) -> bytes:
    """The Markdown of one or more reports."""
    return "\n".join(line for report in reports for line in _report(report, reports)).encode()


def escape(text: object) -> str:
    """Any text as Markdown that shows it on one line, in a table's cell too."""
    return _SPECIAL.sub(r"\\\1", printable(text, _LONGEST))


def answer(claims: Iterable[Claim]) -> tuple[str, str]:
    """The worst outcome, and how many claims came to which."""
    counts = Counter(claim.outcome for claim in claims)
    found = [word for word in OUTCOMES if counts[word]]
    text = ", ".join(f"{counts[word]} {word}" for word in found)
    return next(iter(found), ""), text or "no claim was judged"


def _report(report: ReportData, reports: Sequence[ReportData]) -> Iterator[str]:
    worst, counts = answer(report.claims)
    name = f"{escape(report.name)}\\: " if len(reports) > 1 else ""
    yield f"### {MARKS.get(worst, '❔')} {name}{counts}"
    yield ""
    yield from (f"{escape(line)}  " for line in report.headline)
    yield ""
    claimed = _claimed(report)
    yield from _table(_RATES, _rates(report, claimed))
    shown = {id(claim) for claim in claimed.values()}
    others = [claim for claim in _worst_first(report.claims) if id(claim) not in shown]
    yield from _table(_CLAIMS, map(_claim, others))
    open_ = [claim for claim in _worst_first(report.claims) if claim.outcome != "PASS"]
    for claim in open_[:_MOST_NOTES]:
        yield from _note(claim)
    if len(open_) > _MOST_NOTES:
        yield from (f"{len(open_) - _MOST_NOTES} more claims did not pass.", "")
    yield from _table(("what ran", "", "candidate"), _ran(report.claims))
    yield from (f"{escape(label)}: {escape(fact)}  " for label, fact in report.facts)
    yield ""


def _worst_first(claims: Iterable[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda claim: OUTCOMES.index(claim.outcome))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = [f"| {' | '.join(map(escape, row))} |" for row in rows]
    if lines:
        yield from (f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines, "")


def _claimed(report: ReportData) -> dict[tuple[object, ...], Claim]:
    """The claims on a rate that was measured, by test and interval."""
    return {
        (claim.test, of.point, of.low, of.high): claim
        for claim in report.claims
        if len(claim.figures) == 1 and (of := claim.figures[0].estimate).unit == "tok/s"
    }


def _rates(
    report: ReportData, claimed: Mapping[tuple[object, ...], Claim]
) -> Iterator[tuple[str, ...]]:
    by_row = {record["row"]: record for record in report.records[0]}
    for record in report.records[1]:
        if record["unit"] != "tok/s":
            continue
        interval = tuple(record[key] for key in ("value", "low", "high"))
        claim = claimed.get((record["test"], *interval))
        verdict = f"{MARKS[claim.outcome]} {claim.outcome}, {claim.threshold}" if claim else ""
        if not claim and record["row"] in by_row:
            outcome = by_row[record["row"]]["outcome"]
            verdict = f"{MARKS[outcome]} {outcome}, see below"
        yield (*_llama_bench(record), verdict)


def _llama_bench(record: Mapping[str, Any]) -> Iterator[str]:
    """The columns of llama-bench, and the interval."""
    size, params = record["size_bytes"], record["n_params"]
    name = record["title"] or record["model"]
    yield f"{name} ({record['model']})" if record["title"] else name
    yield f"{size / 2**20:.2f} MiB" if size and size < 2**30 else f"{(size or 0) / 2**30:.2f} GiB"
    yield "" if not params else f"{params / 1e6:.2f} M" if params < 1e9 else f"{params / 1e9:.2f} B"
    yield record["backend"]
    yield "" if record["threads"] is None else f"{record['threads']:.0f}"
    yield " ".join(filter(None, (record["workload"], record["side"])))
    yield f"{record['value']:.2f}"
    known = None not in (record["low"], record["high"])
    yield f"{record['low']:.2f} to {record['high']:.2f}" if known else ""


def _claim(claim: Claim) -> tuple[str, ...]:
    word = f"{MARKS[claim.outcome]} {claim.outcome}"
    return word, claim.subject, claim.measured, claim.threshold, claim.basis


def _note(claim: Claim) -> Iterator[str]:
    """Why a claim did not pass and what to do, folded; no text can end an indented block."""
    head = printable(f"{claim.outcome} {claim.subject}: {claim.measured}", _LONGEST)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        head = head.replace(sign, entity)
    lines = [*claim.details, *([f"what to do: {claim.advice}"] if claim.advice else [])]
    lines += [f"again: {claim.repeat}"]
    code = [f"    {printable(line, _LONGEST)}" for line in lines[-_MOST_LINES:]]
    yield from (f"<details><summary>{head}</summary>", "", *code, "", "</details>", "")


def _ran(claims: Sequence[Claim]) -> list[tuple[str, str, str]]:
    """The facts of what ran, each once; of a gate beside each other, marked where they differ."""
    rows: dict[tuple[str, str, str], None] = {}
    for claim in claims:
        ran = dict(claim.ran)
        labels = [label.removeprefix(_SIDES[0]).removeprefix(_SIDES[1]) for label in ran]
        for label in dict.fromkeys(labels):
            base, candidate = (ran.get(f"{side}{label}", ran.get(label, "")) for side in _SIDES)
            differs = base != candidate
            if label not in _OF_A_CLAIM or (label == "settings" and differs):
                row = (f"{label} (differs)", base, candidate) if differs else (label, base, "")
                rows[row] = None
    return list(rows)
