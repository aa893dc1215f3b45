"""Where a session's state and a test's notes are kept: pytest's own stash."""

# ruff: noqa: PLC0415  # asked in every report, and mostly there is nothing

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.report.rows import Row
    from pytest_asperf.run import Run

_RUN = pytest.StashKey["Run"]()
_ROWS = pytest.StashKey["list[Row]"]()


def run_of(config: pytest.Config) -> Run:
    """Return the session's state, made when it is first asked for."""
    run = opened_run(config)
    if run is None:
        from pytest_asperf.run import Run

        run = config.stash[_RUN] = Run(config)
    return run


def opened_run(config: pytest.Config) -> Run | None:
    """Return the session's state if anything asked for it."""
    return config.stash.get(_RUN, None)


def note(item: pytest.Item, row: Row) -> None:
    """Note a row with the test it belongs to, once however often the test asks for it."""
    rows = item.stash.setdefault(_ROWS, [])
    if row not in rows:
        rows.append(row)


def take_notes(item: pytest.Item) -> list[Row]:
    """Return the rows noted since the last call, and forget them."""
    rows = item.stash.get(_ROWS, [])
    item.stash[_ROWS] = []
    return rows
