"""The JSON report of a session or a gate: claims and measurements as tables, and every row."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.report.measurements import table
from pytest_asperf.report.rows import ReportRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCHEMA: Final = 1
#: A report as plain data.
JsonReport = dict[str, Any]
#: What a claim has of its first figure, by the names that a figure has for it.
_OF_A_FIGURE: Final = {
    "figure": "label",
    "value": "point",
    **{key: key for key in ("low", "high", "n", "counted", "unit", "confidence")},
    **{key: key for key in ("at_least", "at_most")},
}
_SHA256: Final = ", sha256 "


def document(
    noted: Sequence[tuple[str, ReportRow]],
    headline: Sequence[str],
    meta: Mapping[str, Any],
    gate: Mapping[str, Any] | None = None,
) -> JsonReport:
    """The report as plain data.

    Args:
        noted: test and row, in the order they were noted.
        headline: lines that say what was measured with.
        meta: when, where and how it was run, as `SessionMeta.as_dict` says it.
        gate: what `asperf gate` came to as a whole.
    """
    rows = [{"test": nodeid, **row.as_dict()} for nodeid, row in noted]
    return _document(rows, headline, meta, {} if gate is None else {"gate": dict(gate)})


def of_each_machine(report: Any) -> list[Any]:
    """A report for each machine of a report; one of a single machine as it is.

    Raises:
        ConfigError: it names several machines, and is not as `document` makes it.
    """
    meta = report.get("meta") if isinstance(report, dict) else None
    machines = meta.get("machines") if isinstance(meta, dict) else None
    if meta is None or not machines:
        return [report]
    common = {key: value for key, value in meta.items() if key != "machines"}
    try:
        by_name: dict[str, list[Any]] = {name: [] for name in machines}
        for row in report["rows"]:
            by_name[row["machine"]].append(row)
        return [
            _document(by_name[name], facts["headline"], {**common, **without_headline(facts)}, {})
            for name, facts in machines.items()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the report's machines are not as pytest-asperf writes them: {printable(error, 200)}",
            why="each figure belongs to the machine that measured it",
            remedy="name a file that pytest --asperf-report=json:FILE wrote",
        ) from None


def without_headline(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of the facts of a machine, those that a report's `meta` has."""
    return {key: value for key, value in facts.items() if key != "headline"}


def known_machines(report: Any) -> list[Any]:
    """The same, without the machines that never said what they are: these measured nothing."""
    every = of_each_machine(report)
    if every == [report]:
        return every
    return [one for one in every if one["meta"]["machine"].get("id")]


def _document(
    rows: Sequence[Mapping[str, Any]],
    headline: Sequence[str],
    meta: Mapping[str, Any],
    gate: Mapping[str, Any],
) -> JsonReport:
    return {
        "schema": SCHEMA,
        "meta": dict(meta),
        "headline": list(headline),
        **gate,
        "claims": flat_claims(rows, meta),
        "measurements": table(rows),
        "rows": list(rows),
    }


def serialise(report: JsonReport) -> bytes:
    """The report as a file."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def flat_claims(rows: Iterable[Mapping[str, Any]], meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The verdicts among a report's rows, each without nested objects, for a table."""
    return [_claim(number, row, meta) for number, row in enumerate(rows) if row["outcome"]]


def _claim(number: int, row: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    figure: Mapping[str, Any] = next(iter(row["raw"].get("figures", ())), {})
    ran = dict(row["ran"])
    model, _, sha256 = _ran(ran, "model").partition(_SHA256)
    return {
        "row": number,
        "test": row["test"],
        "machine": row["machine"],
        "claim": row["subject"],
        "limit": row["threshold"],
        "outcome": row["outcome"],
        "source": row["source"],
        "measured": row["measured"],
        **{key: figure.get(name) for key, name in _OF_A_FIGURE.items()},
        "model": model,
        "sha256": _ran(ran, "sha256") or sha256,
        **{key: _ran(ran, key) for key in ("engine", "build", "settings")},
        "advice": row["raw"].get("advice", ""),
        "finding": row["finding"],
        "repeat": _repeat(row["test"], meta),
    }


def _repeat(test: str, meta: Mapping[str, Any]) -> str:
    """The command that measures this again: of a gate, all of it."""
    if not meta:  # a file of an earlier version
        return ""
    is_gate = str(meta.get("command", "")).startswith("asperf gate")
    words = ("asperf", "gate") if is_gate else ("pytest", test)
    return shlex.join([*words, *meta.get("options", ())])


def _ran(ran: Mapping[str, str], label: str) -> str:
    """A fact of what ran; of a gate, that of the candidate."""
    return ran.get(label) or ran.get(f"candidate {label}") or ""


#: The columns of a claim.
COLUMNS: Final = tuple(_claim(0, {"test": "", **ReportRow("", "", "", "").as_dict()}, {}))
