"""The JSON report: every claim, and every row with its raw counts, for programs to read."""

from __future__ import annotations

import json
import shlex
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.report.rows import ReportRow

SCHEMA: Final = 1
#: A report as plain data.
JsonReport = dict[str, Any]
#: What a claim has of its first figure, by the names that a figure has for it.
_OF_A_FIGURE: Final = {
    "value": "point",
    **dict.fromkeys(("low", "high", "n", "counted", "unit", "confidence", "at_least", "at_most")),
}


def document(
    noted: Sequence[tuple[str, ReportRow]], headline: Sequence[str], meta: Mapping[str, Any]
) -> JsonReport:
    """The report as plain data.

    Args:
        noted: test and row, in the order they were noted.
        headline: lines that say what the session measured with.
        meta: when, where and how it was run, as `SessionMeta.as_dict` says it.
    """
    rows = [{"test": nodeid, **row.as_dict()} for nodeid, row in noted]
    return {
        "schema": SCHEMA,
        "meta": dict(meta),
        "headline": list(headline),
        "claims": [_claim(n, row, meta) for n, row in enumerate(rows) if row["outcome"]],
        "rows": rows,
    }


def serialise(report: JsonReport) -> bytes:
    """The report as a file."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _claim(number: int, row: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict without nested objects, for a table."""
    figure: Mapping[str, Any] = next(iter(row["raw"].get("figures", ())), {})
    ran = dict(row["ran"])
    return {
        "row": number,
        "test": row["test"],
        "claim": row["subject"],
        "limit": row["threshold"],
        "outcome": row["outcome"],
        "source": row["source"],
        "measured": row["measured"],
        **{key: figure.get(name or key) for key, name in _OF_A_FIGURE.items()},
        **{key: _ran(ran, key) for key in ("model", "engine", "build")},
        "advice": row["raw"].get("advice", ""),
        "finding": row["finding"],
        "repeat": shlex.join(chain(("pytest", row["test"]), meta.get("options", ()))),
    }


def _ran(ran: Mapping[str, str], label: str) -> str:
    """A fact of what ran; of a gate, that of the candidate."""
    return ran.get(label) or ran.get(f"candidate {label}") or ""
