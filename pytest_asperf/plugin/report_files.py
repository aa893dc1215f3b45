"""The one place that writes reports."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_asperf import __version__
from pytest_asperf.errors import AsperfError, printable
from pytest_asperf.plugin.machines import measured
from pytest_asperf.report import github
from pytest_asperf.report.formats import write
from pytest_asperf.report.history import DRAWN, history_series
from pytest_asperf.report.json_report import document, known_machines
from pytest_asperf.report.read_report import read_reports
from pytest_asperf.report.session_meta import SessionMeta
from pytest_asperf.store.unsent import keep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.json_report import JsonReport
    from pytest_asperf.report.report_data import Series

#: Sources of rows that a session measured; others replay what was recorded.
_MEASURED: Final = {"live", "elsewhere"}


def write_reports(
    pytest_session: pytest.Session, session: Session, reports: Sequence[Any], began: float
) -> None:
    """Write the reports asked for, and tell GitHub; a report that cannot be written is a failure.

    Nothing measured is written too: a program that reads the file must not find an older one.
    """
    found = measured(pytest_session.config, reports)
    noted, settings = found.noted, session.settings
    if not settings.report and not (noted and (settings.store or github.is_job())):
        return
    # Without a measurement there may be no engine to describe, as after Ctrl-C during its import.
    headline = found.headline() or (session.headline() if reports else [])
    meta = _meta(pytest_session.config, session, began).as_dict() | found.meta()
    made = document(noted, headline, meta)
    history = _store(made, settings.store, session) if settings.store else {}
    for target in settings.report:
        try:
            read = read_reports(made, name=target.path.name)
            written = write(
                target, [replace(r, history=history.get(r.name, history.get("", ()))) for r in read]
            )
        except AsperfError as error:
            session.unwritten[target.path] = error
            continue
        session.written += written
        if not written:
            session.closing.append("asperf: plots: speculation was not measured, nothing to draw")
    if noted and github.is_job():
        for report in read_reports(made, name="pytest"):
            session.closing += github.tell(report, pytest_session.config.rootpath)
    if session.unwritten and pytest_session.exitstatus == pytest.ExitCode.OK:
        pytest_session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _store(report: JsonReport, address: str, session: Session) -> Mapping[str, tuple[Series, ...]]:
    """Keep what each machine measured in the history, and give its series by its name."""
    return {
        one["rows"][0]["machine"]: _store_one(one, address, session)
        for one in known_machines(report)
        if any(row["source"] in _MEASURED for row in one["rows"])
    }


def _store_one(report: JsonReport, address: str, session: Session) -> tuple[Series, ...]:
    """Keep a report in the history, and give its series if a page shows them.

    One that waits for its store is no failure.
    """
    is_shown = any(target.format == "html" for target in session.settings.report)
    n_points = DRAWN if is_shown else 0
    try:
        kept = keep(report, address, kind="session", cache=session.cache, n_points=n_points)
    except AsperfError as error:
        session.unwritten[Path(address)] = error
        return ()
    session.stored += kept.lines()
    if kept.error is not None:
        session.closing.append(f"asperf: {printable(kept.complaint)}")
        if not kept.error.may_pass:
            session.unwritten[Path(address)] = kept.error
    return history_series(kept.history)


def _meta(config: pytest.Config, session: Session, began: float) -> SessionMeta:
    # Workers of xdist draw seeds of their own.
    is_shared = config.pluginmanager.hasplugin("dsession")
    seed = session.settings.seed if is_shared else session.seed
    args = tuple(map(str, config.invocation_params.args))
    return SessionMeta(__version__, args, began, time.time() - began, seed, session.hardware)
