"""The one place that writes reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.errors import CacheError
from pytest_asperf.report.json_report import serialise
from pytest_asperf.report.rows import noted_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_asperf.run import Run


def write_reports(session: pytest.Session, run: Run, reports: Sequence[Any]) -> None:
    """Write the reports asked for; one that cannot be written fails a session that passed.

    Nothing measured is written too: a program that reads the file must not find an older one.

    Args:
        session: pytest's session.
        run: whose settings name the files; keeps what could not be written for the summary.
        reports: test reports that carry rows.
    """
    for target in run.settings.report:
        try:
            _write(target.path, serialise(noted_rows(reports), run.headline()))
        except CacheError as error:
            run.unwritten[target.path] = error
    if run.unwritten and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as err:
        raise CacheError(
            f"the report {path} cannot be written: {err}",
            why="what was measured is in this terminal's output only",
            remedy="name a place that can be written with --asperf-report",
        ) from err
