"""Published findings in words: all in a table, one explained, as data, and the page of the docs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_asperf.analysis.verdict import Outcome, Verdict
from pytest_asperf.config.settings import session_option
from pytest_asperf.errors import printable
from pytest_asperf.published.findings import Finding, Findings, judge_recorded, published_text
from pytest_asperf.published.findings.terms import ids_of
from pytest_asperf.published.records import derived_checks
from pytest_asperf.records.codec import encode
from pytest_asperf.records.kinds import Noted
from pytest_asperf.report.lines import first_line
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.sections import CheckLine, Section
from pytest_asperf.report.wrapping import wrapped

_COLOURS: Final = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "INVALID": "magenta"}
_HEAD: Final = """# All published findings

Statements of five published documents on LLM inference on Apple Silicon, and the verdicts on them.
Written by `asperf findings --report md:-`; the data are in `pytest_asperf/data/findings` and
`pytest_asperf/data/recorded`.

`pytest --pyargs pytest_asperf.findings` judges these statements: live if this machine is in their
scope and a test measures them, otherwise by the published figures. A verdict on published figures
fails no test, and only PASS looks like a pass.

Every verdict is based on a two-sided 90 % interval. It includes the published spread, or the spread
in the documents' raw logs. If neither is published, the spread is [assumed](#assumed-spread), and
only statements that survive it pass. A figure that is printed without more decimals means every
value that rounds to it. [Guards](guards.md) come before verdicts.
"""
_GROUPS: Final = (
    (
        Outcome.FAIL,
        "Contradicted",
        "The figures show the opposite of the statement. These come first, as they surprise most.",
    ),
    (Outcome.PASS, "Confirmed", "Shown by the figures, with their spread."),
    (Outcome.INCONCLUSIVE, "Undecided", "The figures neither show nor exclude it."),
    (Outcome.INVALID, "Unusable", "A guard rejects the measurement, so that it shows nothing."),
)
#: Number of the figures under a finding: more are in the published tables that it names.
_MOST_FIGURES: Final = 12


def listing(judged: Iterable[tuple[Finding, Verdict]], findings: Findings) -> str:
    """The table of findings that `asperf findings` prints, and their count."""
    console, rows = Console(), list(judged)
    if not rows:
        return "no finding is of that verdict and hardware"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("verdict", "finding; its published figure, and that judged [90 % interval]"):
        table.add_column(header, overflow="fold")
    for finding, verdict in rows:
        line = first_line(Noted("", verdict))
        # Text, not markup: projects publish their own content.
        entry = Text(printable(f"{finding.id}: {finding.statement}"), style="bold")
        published = published_text(finding, findings.evidence)
        found = f"{line.measured} ({line.basis})" if line.basis else line.measured
        figures = "; ".join([*([f"published {published}"] if published else []), f"judged {found}"])
        entry.append("\n" + printable(figures), style="not bold")
        table.add_row(Text(line.outcome, style=_COLOURS[line.outcome]), entry)
    outcomes = [verdict.outcome for _, verdict in rows]
    counted = ", ".join(f"{n} {word}" for word in _COLOURS if (n := outcomes.count(Outcome(word))))
    with console.capture() as shown:
        console.print(table)
    lines = [line.rstrip() for line in shown.get().splitlines()]
    note = "none of these verdicts fails a test; asperf findings ID explains one"
    below = [part for text in (counted, note) for part in wrapped(text, console.width)]
    return "\n".join([*lines, *below])


def finding_data(finding: Finding, verdict: Verdict, findings: Findings) -> dict[str, Any]:
    """A finding with its expected verdict, in JSON."""
    return {
        "id": finding.id,
        "statement": finding.statement,
        "topic": finding.topic,
        "explanation": finding.explanation,
        "hardware": list(finding.hardware),
        "architecture": finding.architecture,
        "engine": finding.engine,
        "models": finding.sizes,
        "verdict": str(verdict.outcome),
        "because": finding.because,
        "published": published_text(finding, findings.evidence),
        "measured": in_words(verdict).measured,
        "figures": [{"label": one.label, **encode(one.estimate)} for one in verdict.figures],
        "rests_on": _ids(verdict),
        "tables": cited(finding),
        "live": finding.live,
    }


def explained(finding: Finding, verdict: Verdict, findings: Findings) -> Section:
    """A finding with the verdict on its figures, their place, and the command that runs it."""
    published = published_text(finding, findings.evidence)
    lines = [
        ("verdict", f"{verdict.outcome}, as {finding.because}"),
        ("means", finding.explanation),
        *([("published", published)] if published else []),
        ("figures", in_words(verdict).measured),
        ("scope", scope_text(finding)),
        *([("asserted live", finding.instead)] if finding.instead else []),
        *_figures(verdict, findings),
        *_sources(finding, findings),
        ("run it live", live_command(finding)),
    ]
    checks = (
        CheckLine(name, "measured", printable(text), is_command=text.startswith("pytest "))
        for name, text in lines
    )
    return Section(f"{finding.id}: {printable(finding.statement)}", tuple(checks))


def live_command(finding: Finding) -> str:
    """The command that measures a finding on this machine."""
    _, _, test = finding.live.partition("::")
    if finding.across:
        return f"asperf compare of two machines' reports: {finding.across.text()}"
    if not test:
        why = f", as {finding.unmeasured}" if finding.unmeasured else ""
        return (
            f"no test measures it{why}; pytest --pyargs pytest_asperf.findings judges its figures"
        )
    scope = f"{session_option('findings_scope')}=all"
    return f"pytest --pyargs pytest_asperf.findings -k {test} {scope}"


def _figures(verdict: Verdict, findings: Findings) -> Iterator[tuple[str, str]]:
    ids = _ids(verdict)
    for number, cell_id in enumerate(ids[:_MOST_FIGURES]):
        cell = findings.evidence.cells[cell_id]
        yield "" if number else "figures", f"{cell}  ({cell_id}; spread: {cell.spread})"
    if len(ids) > _MOST_FIGURES:
        yield "", f"and {len(ids) - _MOST_FIGURES} more"


def _sources(finding: Finding, findings: Findings) -> Iterator[tuple[str, str]]:
    documents = {document.source.id: document for document in findings.records.documents}
    for number, name in enumerate(cited(finding)):
        source_id, table_id = name.split("/")
        document = documents[source_id]
        (table,) = (table for table in document.tables if table.id == table_id)
        source = document.source
        where = f"{source.title}, {table.where}: {table.title}"
        yield "" if number else "source", "; ".join(filter(None, (where, source.url)))


def _ids(verdict: Verdict) -> list[str]:
    return [cell_id for label, cell_id in verdict.facts if label == "figure"]


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
        f"**{_escaped(finding.statement)}.** {_escaped(finding.explanation)}\n",
        f"* published: {_escaped(published)}" if published else "",
        f"* figures: {_escaped(in_words(verdict).measured)}",
        f"* {verdict.outcome}, as {_escaped(finding.because)}",
        f"* scope: {_escaped(scope_text(finding))}",
        f"* figures from: {', '.join(f'`{table}`' for table in cited(finding))}",
        f"* measured live by `{finding.live}`" if finding.live else "",
        f"* asserted there: {_escaped(finding.instead)}" if finding.instead else "",
        f"* judged by `asperf compare`: {_escaped(finding.across.text())}"
        if finding.across
        else "",
        f"* not measured, as {_escaped(finding.unmeasured)}" if finding.unmeasured else "",
        f"* id: `{finding.id}`",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def scope_text(finding: Finding) -> str:
    """The scope of a finding: hardware, architecture, engine and sizes of models."""
    parts = [" and ".join(finding.hardware) or "any hardware"]
    parts += [finding.architecture] if finding.architecture else []
    parts += [finding.engine] if finding.engine else []
    parts += [finding.sizes] if finding.sizes else []
    return ", ".join(parts)


def cited(finding: Finding) -> list[str]:
    """The tables with a finding's figures or its statement."""
    terms = [*finding.check.terms(), *(term for guard in finding.guards for term in guard.terms())]
    ids = [*finding.published, *(item for term in terms for item in ids_of(term))]
    of_figures = ["/".join(item.split("/")[:2]) for item in ids]
    return list(dict.fromkeys([*of_figures, *finding.sources]))


def _derived(findings: Findings) -> str:
    checks = derived_checks(findings.records)
    wrong = [check for check in checks if not check.follows]
    rows = []
    for check in wrong:
        low, high = f"{check.low:.4g}", f"{check.high:.4g}"
        computed = low if low == high else f"{low} to {high}"
        why = _escaped(check.derivation.why)
        rows.append((f"`{check.cell.id}`", _escaped(str(check.cell)), computed, why))
    return _section(
        "Derived figures that do not follow",
        f"{len(checks)} published figures follow from others; all were computed again, with room\n"
        f"for the rounding of their inputs. {len(wrong)} do not come out:",
        ("figure", "printed", "computed", "why"),
        rows,
    )


def _section(title: str, text: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    table.insert(1, "|" + "---|" * len(head))
    return "\n".join([f"## {title}", "", text, "", *table]) + "\n"


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
    return _section(
        "Figures that no finding can rest on",
        "From tables that have findings. Tables without any have the reason above.",
        ("figure", "printed", "why"),
        (
            (f"`{name}`", _escaped(str(cells[name])), _escaped(why))
            for name, why in findings.reference
            if name in cells
        ),
    )


def _assumptions(findings: Findings) -> str:
    rows = []
    for spread in findings.evidence.spreads:
        metrics = ", ".join(sorted(spread.metrics))
        source = f"`{spread.source}`" if spread.source else "any"
        assumed = "none" if spread.is_none else str(spread)
        rows.append((metrics, source, assumed, _escaped(spread.because)))
    text = "For documents without spread and raw logs. The first match is used."
    return _section("Assumed spread", text, ("figures", "of", "assumed", "because"), rows)


def _escaped(text: str) -> str:
    """Text that Markdown shows unchanged."""
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
