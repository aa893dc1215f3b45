"""Where a session's state and a test's notes are kept: pytest's own stash."""

# ruff: noqa: PLC0415  # asked in every report, and mostly there is nothing

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.rows import ReportRow

_RUN = pytest.StashKey["Session"]()
_ROWS = pytest.StashKey["dict[str, list[ReportRow]]"]()


def session_of(config: pytest.Config) -> Session:
    """Return the session's state, made when it is first asked for."""
    run = opened_session(config)
    if run is None:
        from pytest_asperf.plugin.session import Session

        run = config.stash[_RUN] = Session(config)
    return run


def opened_session(config: pytest.Config) -> Session | None:
    """Return the session's state if anything asked for it."""
    return config.stash.get(_RUN, None)


@dataclass(frozen=True, slots=True)
class Unreported:
    """What a test noted that pytest made no report of, because the session ended in it.

    Attributes:
        nodeid: the test.
        asperf_rows: its rows as plain data, as on a report.
        start: a report's time of beginning; it was the last.
    """

    nodeid: str
    asperf_rows: list[dict[str, object]]
    start: float = math.inf


def note(item: pytest.Item, row: ReportRow) -> None:
    """Note a row with the test it belongs to, once however often the test asks for it."""
    rows = item.config.stash.setdefault(_ROWS, {}).setdefault(item.nodeid, [])
    if row not in rows:
        rows.append(row)


def take_notes(item: pytest.Item) -> list[ReportRow]:
    """Return the rows that a test noted since the last call, and forget them."""
    return item.config.stash.get(_ROWS, {}).pop(item.nodeid, [])


def unreported(config: pytest.Config) -> list[Unreported]:
    """Return what was noted and never taken."""
    noted = config.stash.get(_ROWS, {}).items()
    return [Unreported(nodeid, [row.as_dict() for row in rows]) for nodeid, rows in noted]
