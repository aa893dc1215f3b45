"""The one place that writes reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf import __version__
from pytest_asperf.errors import AsperfError
from pytest_asperf.report import github
from pytest_asperf.report.formats import write
from pytest_asperf.report.json_report import document
from pytest_asperf.report.read_report import read_report
from pytest_asperf.report.rows import noted_rows
from pytest_asperf.report.session_meta import SessionMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.plugin.session import Session


def write_reports(
    pytest_session: pytest.Session, session: Session, reports: Sequence[Any], began: float
) -> None:
    """Write the reports asked for, and tell GitHub; a report that cannot be written is a failure.

    Nothing measured is written too: a program that reads the file must not find an older one.
    """
    noted = noted_rows(reports)
    if not session.settings.report and not (noted and github.is_job()):
        return
    # Without a measurement there may be no engine to describe, as after Ctrl-C during its import.
    headline = session.headline() if noted else []
    made = document(noted, headline, _meta(pytest_session.config, session, began).as_dict())
    for target in session.settings.report:
        try:
            written = write(target, [read_report(made, name=target.path.name)])
        except AsperfError as error:
            session.unwritten[target.path] = error
            continue
        session.written += written
        if not written:
            session.closing.append("asperf: plots: speculation was not measured, nothing to draw")
    if noted and github.is_job():
        session.closing += github.tell(
            read_report(made, name="pytest"), pytest_session.config.rootpath
        )
    if session.unwritten and pytest_session.exitstatus == pytest.ExitCode.OK:
        pytest_session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _meta(config: pytest.Config, session: Session, began: float) -> SessionMeta:
    # Workers of xdist draw seeds of their own.
    is_shared = config.pluginmanager.hasplugin("dsession")
    seed = session.settings.seed if is_shared else session.seed
    args = tuple(map(str, config.invocation_params.args))
    return SessionMeta(__version__, args, began, time.time() - began, seed, session.hardware)
