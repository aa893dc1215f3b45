"""The one place that writes reports."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf import __version__
from pytest_asperf.errors import AsperfError, CacheError
from pytest_asperf.report import speculation_picture
from pytest_asperf.report.json_report import document, serialise
from pytest_asperf.report.page import page
from pytest_asperf.report.read_report import read_report
from pytest_asperf.report.rows import noted_rows
from pytest_asperf.report.session_meta import SessionMeta
from pytest_asperf.report.speculation_points import points_of
from pytest_asperf.store.unsent import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.config.settings import ReportTarget
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.json_report import JsonReport
    from pytest_asperf.report.rows import ReportRow


def write_reports(
    pytest_session: pytest.Session, session: Session, reports: Sequence[Any], began: float
) -> None:
    """Write the reports asked for; one that cannot be written fails a session that passed.

    Nothing measured is written too: a program that reads the file must not find an older one. For
    the same reason pictures of which there is nothing to draw are removed.
    """
    settings = session.settings
    if not (settings.report or settings.store):
        return
    noted = noted_rows(reports)
    # Without a measurement there may be no engine to describe, as after Ctrl-C during its import.
    headline = session.headline() if noted else []
    report = document(noted, headline, _meta(pytest_session.config, session, began).as_dict())
    for target in settings.report:
        try:
            for path, content in _files(target, report, noted).items():
                _write(path, content)
                session.written += [path] if content else []
        except AsperfError as error:
            session.unwritten[target.path] = error
    if settings.store and noted:
        try:
            _store(report, settings.store, session)
        except AsperfError as error:
            session.unwritten[Path(settings.store)] = error
    if session.unwritten and pytest_session.exitstatus == pytest.ExitCode.OK:
        pytest_session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _store(report: JsonReport, address: str, session: Session) -> None:
    """Keep the report in the history; one that waits for its store is no failure."""
    kept = keep(report, address, kind="session", cache=session.cache)
    session.stored += kept.lines()
    session.unsent = kept.complaint
    if kept.error is not None and not kept.error.may_pass:
        raise kept.error


def _meta(config: pytest.Config, session: Session, began: float) -> SessionMeta:
    # Workers of xdist draw seeds of their own.
    is_shared = config.pluginmanager.hasplugin("dsession")
    seed = session.settings.seed if is_shared else session.seed
    args = tuple(map(str, config.invocation_params.args))
    return SessionMeta(__version__, args, began, time.time() - began, seed, session.hardware)


def _files(
    target: ReportTarget, report: JsonReport, noted: Sequence[tuple[str, ReportRow]]
) -> dict[Path, bytes]:
    if target.format == "json":
        return {target.path: serialise(report)}
    if target.format == "html":
        return {target.path: page([read_report(report, name=target.path.name)])}
    points = points_of(row for _, row in noted)
    pictures = speculation_picture.draw(points, report["headline"])
    return {target.path / name: content for name, content in pictures.items()}


def _write(path: Path, content: bytes) -> None:
    try:
        if not content:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as err:
        raise CacheError(
            f"the report {path} cannot be written: {err}",
            why="what was measured is in this terminal's output only",
            remedy="name a place that can be written with --asperf-report",
        ) from err
