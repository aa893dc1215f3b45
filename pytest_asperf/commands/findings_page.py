"""The findings as a page: what holds, what does not, and which table of which document says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import Console

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.published.findings import judge_recorded, published_text
from pytest_asperf.published.findings.terms import ids_of
from pytest_asperf.published.records import derived_checks
from pytest_asperf.records.kinds import Noted
from pytest_asperf.records.taken import about_finding, verdict_record
from pytest_asperf.report.lines import first_line
from pytest_asperf.report.tables import render_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.published.findings import Finding, Findings
    from pytest_asperf.report.lines import Line

_HEAD: Final = """# All published findings

What five published documents say of LLM inference on Apple Silicon, and what their figures show.
Written by `asperf findings --markdown`; the data are in `pytest_asperf/data/findings` and
`pytest_asperf/data/recorded`.

`pytest --pyargs pytest_asperf.findings` judges these statements: live where this machine is the
hardware that a statement is about and a test measures it, else by the recorded figures. A verdict
on recorded figures fails no test, and only PASS looks like a pass.

Every verdict rests on a two-sided 90 % interval. It holds the published spread, or what the
documents' raw logs show of it; where nothing is published, the spread is
[assumed](#what-is-assumed-of-spread) and only what survives it passes. A figure that is printed
without more decimals stands for all that rounds to it. [Guards](guards.md) come before verdicts.
"""
_GROUPS: Final = (
    (Outcome.PASS, "What holds", "Shown by the figures, with their spread."),
    (Outcome.FAIL, "What does not hold", "The figures show the opposite of the statement."),
    (Outcome.INCONCLUSIVE, "What is open", "The figures neither show nor exclude it."),
    (
        Outcome.INVALID,
        "What cannot be used",
        "A guard rejects the measurement, so that it says nothing either way.",
    ),
)


def listing(judged: Iterable[tuple[Finding, Verdict]], findings: Findings) -> str:
    """The table of findings that `asperf findings` prints."""
    console = Console()
    table = render_findings(
        [_line(*one, findings) for one in judged], console.width, colour=console.is_terminal
    )
    return table.strip("\n") or "no finding is of that verdict and hardware"


def _line(finding: Finding, verdict: Verdict, findings: Findings) -> Line:
    published = published_text(finding, findings.evidence)
    named = replace(finding, statement=f"{finding.id}: {finding.statement}")
    return first_line(Noted("", about_finding(verdict_record(verdict), named, published)))


def markdown(findings: Findings) -> str:
    """The page of all findings."""
    verdicts = [(item, judge_recorded(item, findings.evidence)) for item in findings.findings]
    parts = [_HEAD, _contents(verdicts)]
    for outcome, title, meaning in _GROUPS:
        chosen = [(item, verdict) for item, verdict in verdicts if verdict.outcome is outcome]
        if chosen:
            parts.append(f"## {title}\n\n{meaning}\n")
            parts += _by_topic(chosen, findings)
    parts += [_derived(findings), _tables(findings), _unjudged(findings), _assumptions(findings)]
    return "\n".join(parts)


def _contents(verdicts: Iterable[tuple[Finding, Verdict]]) -> str:
    outcomes = [verdict.outcome for _, verdict in verdicts]
    counts = ", ".join(f"{outcomes.count(item)} {item}" for item, _, _ in _GROUPS)
    return f"{len(outcomes)} statements: {counts}.\n"


def _by_topic(chosen: list[tuple[Finding, Verdict]], findings: Findings) -> Iterator[str]:
    for topic in dict.fromkeys(item.topic for item, _ in chosen):
        yield f"### {topic}\n"
        for item, verdict in chosen:
            if item.topic == topic:
                yield _entry(item, verdict, findings)


def _entry(finding: Finding, verdict: Verdict, findings: Findings) -> str:
    published = published_text(finding, findings.evidence)
    lines = [
        f"**{_escaped(finding.statement)}.** {_escaped(finding.reading)}\n",
        f"* published: {_escaped(published)}" if published else "",
        f"* recorded: {_escaped(verdict.measured)}",
        f"* {verdict.outcome}, as {_escaped(finding.because)}",
        f"* holds for: {_escaped(scope_text(finding))}",
        f"* figures from: {', '.join(f'`{table}`' for table in cited(finding))}",
        f"* measured live by `{finding.live}`" if finding.live else "",
        f"* id: `{finding.id}`",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def scope_text(finding: Finding) -> str:
    """What a finding is about: hardware, architecture, engine and sizes of models."""
    parts = [" and ".join(finding.hardware) or "any hardware"]
    parts += [finding.architecture] if finding.architecture else []
    parts += [finding.engine] if finding.engine else []
    parts += [finding.sizes] if finding.sizes else []
    return ", ".join(parts)


def cited(finding: Finding) -> list[str]:
    """The tables that a finding rests on or that state it."""
    terms = [*finding.check.terms(), *(term for guard in finding.guards for term in guard.terms())]
    ids = [*finding.published, *(item for term in terms for item in ids_of(term))]
    of_figures = ["/".join(item.split("/")[:2]) for item in ids]
    return list(dict.fromkeys([*of_figures, *finding.sources]))


def _derived(findings: Findings) -> str:
    checks = derived_checks(findings.records)
    wrong = [check for check in checks if not check.follows]
    lines = [
        "## Derived figures that do not follow",
        "",
        f"{len(checks)} published figures follow from others; all were computed again, with room",
        f"for the rounding of their inputs. {len(wrong)} do not come out:",
        "",
        "| figure | printed | computed | why |",
        "|---|---|---|---|",
    ]
    for check in wrong:
        low, high = f"{check.low:.4g}", f"{check.high:.4g}"
        computed = low if low == high else f"{low} to {high}"
        printed = f"{check.cell.printed.text} {check.cell.unit}".strip()
        why = _escaped(check.derivation.why)
        lines.append(f"| `{check.cell.id}` | {_escaped(printed)} | {computed} | {why} |")
    return "\n".join(lines) + "\n"


def _tables(findings: Findings) -> str:
    by_table: dict[str, list[str]] = {}
    for finding in findings.findings:
        for name in cited(finding):
            by_table.setdefault(name, []).append(finding.id)
    reference = dict(findings.reference)
    lines = ["## Every table of every document", ""]
    for document in findings.records.documents:
        source = document.source
        date = f" ({source.date})" if source.date else ""
        lines += [f"### {_escaped(source.title)}{date}", "", f"`{source.id}` {source.url}".rstrip()]
        if source.note:
            lines += ["", _escaped(source.note)]
        lines += ["", "| table | what and where | findings |", "|---|---|---|"]
        for table in document.tables:
            name = f"{source.id}/{table.id}"
            users = ", ".join(f"`{item}`" for item in by_table.get(name, ()))
            users = users or f"none: {_escaped(reference.get(name, 'no finding rests on it'))}"
            what = _escaped(f"{table.title}; {table.where}")
            lines.append(f"| `{table.id}` | {what} | {users} |")
        lines.append("")
    return "\n".join(lines)


def _unjudged(findings: Findings) -> str:
    cells = findings.evidence.cells
    lines = [
        "## Figures that no finding can rest on",
        "",
        "Of tables that have findings. Tables without any say why above.",
        "",
        "| figure | printed | why |",
        "|---|---|---|",
    ]
    for name, why in findings.reference:
        if name in cells:
            printed = f"{cells[name].printed.text} {cells[name].unit}".strip()
            lines.append(f"| `{name}` | {_escaped(printed)} | {_escaped(why)} |")
    return "\n".join(lines) + "\n"


def _assumptions(findings: Findings) -> str:
    lines = [
        "## What is assumed of spread",
        "",
        "Where a document gives none and its raw logs hold none. The first that fits is taken.",
        "",
        "| figures | of | assumed | because |",
        "|---|---|---|---|",
    ]
    for spread in findings.evidence.spreads:
        metrics = ", ".join(sorted(spread.metrics))
        source = f"`{spread.source}`" if spread.source else "any"
        assumed = "none" if spread.is_none else str(spread)
        lines.append(f"| {metrics} | {source} | {assumed} | {_escaped(spread.because)} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text that Markdown shows unchanged."""
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
