"""The JSON report: every row with its raw counts, for programs to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_asperf.report.rows import ReportRow

SCHEMA: Final = 1


def serialise(noted: Iterable[tuple[str, ReportRow]], headline: Sequence[str]) -> bytes:
    """The report: test and row in the order they were noted, and what the session measured with."""
    rows = [{"test": nodeid, **row.as_dict()} for nodeid, row in noted]
    document = {"schema": SCHEMA, "headline": list(headline), "rows": rows}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
