"""The one place that writes reports."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_asperf import __version__
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import AsperfError, printable
from pytest_asperf.plugin.carried import records_of
from pytest_asperf.plugin.machines import measured
from pytest_asperf.plugin.stash import session_of
from pytest_asperf.records.report import Report, known_machines
from pytest_asperf.report import github
from pytest_asperf.report.formats import write
from pytest_asperf.report.history import DRAWN, history_series
from pytest_asperf.report.json_report import document
from pytest_asperf.report.report_data import shown_reports
from pytest_asperf.report.session_meta import SessionMeta

if TYPE_CHECKING:
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.records.kinds import AnyRecord
    from pytest_asperf.report.lines import Series

#: Sources of rows that a session measured; others use published figures.
_MEASURED: Final = {"live", "out of scope"}


def store_so_far(config: pytest.Config, reports: Sequence[Any], began: float) -> None:
    """Store the tests' measurements so far in the history, so that a kill loses none of them.

    A report that cannot be stored now is tried again, and reported, at the end of the session.
    """
    session = session_of(config)
    if session.settings.store and _has_measured(records_of(reports[-1])):
        found = measured(config, reports)
        meta = found.meta(_meta(config, session, began).facts())
        whole = Report(meta=meta, headline=tuple(found.headline()), rows=tuple(found.noted))
        for machine, one in _measured_on(whole).items():
            with suppress(AsperfError):
                session.growing(machine).update(document(one))


def write_reports(
    pytest_session: pytest.Session, session: Session, reports: Sequence[Any], began: float
) -> None:
    """Write the requested reports and GitHub's summary; an unwritten report is a failure.

    Nothing measured is written too: a program that reads the file must not find an older one.
    """
    found = measured(pytest_session.config, reports)
    noted, settings = found.noted, session.settings
    if not settings.report and not (noted and (settings.store or github.is_job())):
        return
    # Without a measurement there may be no engine to describe, as after Ctrl-C during its import.
    headline = found.headline() or (session.headline() if reports else [])
    meta = found.meta(_meta(pytest_session.config, session, began).facts())
    made = Report(meta=meta, headline=tuple(headline), rows=tuple(noted))
    history = {}
    for machine, one in _measured_on(made).items() if settings.store else ():
        history[one.rows[0].machine] = _store_one(machine, one, session)
    for target in settings.report:
        try:
            read = shown_reports(made, name=target.path.name)
            write(
                target, [replace(r, history=history.get(r.name, history.get("", ()))) for r in read]
            )
        except AsperfError as error:
            session.unwritten[target.path] = error
            continue
        session.written.append(target.path)
    if noted and github.is_job():
        for report in shown_reports(made, name="pytest"):
            session.closing += github.tell(report, pytest_session.config.rootpath)
    if session.unwritten and pytest_session.exitstatus == pytest.ExitCode.OK:
        pytest_session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _measured_on(report: Report) -> dict[str, Report]:
    return {
        one.meta.machine.id: one
        for one in known_machines(report)
        if _has_measured(noted.record for noted in one.rows)
    }


def _has_measured(records: Iterable[AnyRecord]) -> bool:
    return any(not isinstance(record, Verdict) or record.source in _MEASURED for record in records)


def _store_one(machine: str, report: Report, session: Session) -> tuple[Series, ...]:
    """Keep a report in the history, and give its series if a page shows them.

    One that waits for its store is no failure.
    """
    growing = session.growing(machine)
    is_shown = any(target.format == "html" for target in session.settings.report)
    n_points = DRAWN if is_shown else 0
    try:
        kept = growing.finish(document(report), kind="session", n_points=n_points)
    except AsperfError as error:
        session.unwritten[Path(growing.address)] = error
        return ()
    session.stored += kept.lines()
    if kept.error is not None:
        session.closing.append(f"asperf: {printable(kept.complaint)}")
        if not kept.error.may_pass:
            session.unwritten[Path(growing.address)] = kept.error
    return history_series(kept.history)


def _meta(config: pytest.Config, session: Session, began: float) -> SessionMeta:
    # Workers of xdist draw seeds of their own.
    is_shared = config.pluginmanager.hasplugin("dsession")
    seed = session.settings.seed if is_shared else session.seed
    args = tuple(map(str, config.invocation_params.args))
    return SessionMeta(__version__, args, began, time.time() - began, seed, session.hardware)
