"""Where a session's state and a test's notes are kept: pytest's own stash."""

# ruff: noqa: PLC0415  # loaded in every pytest run, used in few

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.rows import ReportRow

_SESSION = pytest.StashKey["Session"]()
_TESTS = pytest.StashKey["Iterable[Path]"]()
_ROWS = pytest.StashKey["dict[str, list[tuple[float, ReportRow]]]"]()
_JUDGED_AT = pytest.StashKey[float]()


def session_of(config: pytest.Config) -> Session:
    """The session's state, made at the first call.

    Raises:
        ConfigError: its settings are not usable, at this call and each that follows.
    """
    session = opened_session(config)
    if session is None:
        from pytest_asperf.plugin.project import folder_of
        from pytest_asperf.plugin.session import Session

        folder = folder_of(config, config.stash.get(_TESTS, frozenset()))
        session = config.stash[_SESSION] = Session(config, folder)
    return session


def session_for(config: pytest.Config, tests: Iterable[Path]) -> Session:
    """The session's state for tests in these files, whose place decides which settings count.

    A session that was opened before the tests were known, with the settings of another folder, is
    replaced: it has measured nothing.

    Raises:
        ConfigError: likewise, or the tests have several configuration files.
    """
    from pytest_asperf.plugin.project import folder_of

    config.stash[_TESTS] = frozenset(tests)
    session = opened_session(config)
    if session is not None and session.folder != folder_of(config, config.stash[_TESTS]):
        del config.stash[_SESSION]
    return session_of(config)


def meet_tests(config: pytest.Config, report: pytest.TestReport) -> None:
    """Take the settings nearest to a test of which xdist's controller has the first report.

    Settings that cannot be used were refused in the test's own process.
    """
    from pytest_asperf.errors import AsperfError

    path = config.rootpath / report.nodeid.partition("::")[0]
    if path.exists():  # of a fleet it may be on another machine alone
        with suppress(AsperfError):
            session_for(config, [path])


def opened_session(config: pytest.Config) -> Session | None:
    """The session's state; None if nothing needed it yet."""
    return config.stash.get(_SESSION, None)


@dataclass(frozen=True, slots=True)
class Unreported:
    """What a test noted that pytest made no report of, because the session ended in it.

    It has the attributes of a report that are read here; being the last, it begins last.
    """

    nodeid: str
    asperf_rows: list[dict[str, object]]
    start: float = math.inf


def note(item: pytest.Item, row: ReportRow) -> None:
    """Note a row with the test it belongs to, once however often the test asks for it."""
    noted = item.config.stash.setdefault(_ROWS, {}).setdefault(item.nodeid, [])
    if row not in (earlier for _, earlier in noted):
        noted.append((time.time(), row))


def take_notes(item: pytest.Item, began: float) -> list[ReportRow]:
    """The rows that a test noted since the last call; the first phase of the test began then.

    A claim took the time since the one before it, unless it says otherwise.
    """
    rows = []
    last = item.stash.get(_JUDGED_AT, began)
    for at, row in item.config.stash.get(_ROWS, {}).pop(item.nodeid, []):
        is_timed = row.outcome and row.elapsed_s is None
        rows.append(replace(row, elapsed_s=at - last) if is_timed else row)
        last = at if row.outcome else last
    item.stash[_JUDGED_AT] = last
    return rows


def unreported(config: pytest.Config) -> list[Unreported]:
    """The rows that were noted but never taken."""
    noted = config.stash.get(_ROWS, {}).items()
    return [Unreported(nodeid, [row.as_dict() for _, row in rows]) for nodeid, rows in noted]
