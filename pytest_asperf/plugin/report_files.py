"""The one place that writes reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.errors import CacheError
from pytest_asperf.report import speculation_picture
from pytest_asperf.report.json_report import serialise
from pytest_asperf.report.rows import noted_rows
from pytest_asperf.report.speculation_points import points_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_asperf.config.settings import ReportTarget
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.rows import ReportRow


def write_reports(session: pytest.Session, run: Session, reports: Sequence[Any]) -> None:
    """Write the reports asked for; one that cannot be written fails a session that passed.

    Nothing measured is written too: a program that reads the file must not find an older one. For
    the same reason pictures of which there is nothing to draw are removed.

    Args:
        session: pytest's session.
        run: whose settings name the files; keeps what was written, and what could not be, for the
            summary.
        reports: test reports that carry rows.
    """
    noted = noted_rows(reports)
    # Without a measurement there may be no engine to describe, as after Ctrl-C during its import.
    headline = run.headline() if noted else []
    for target in run.settings.report:
        try:
            for path, content in _files(target, noted, headline).items():
                _write(path, content)
                run.written += [path] if content else []
        except CacheError as error:
            run.unwritten[target.path] = error
    if run.unwritten and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _files(
    target: ReportTarget, noted: Sequence[tuple[str, ReportRow]], headline: Sequence[str]
) -> dict[Path, bytes]:
    if target.format == "json":
        return {target.path: serialise(noted, headline)}
    points = points_of(row for _, row in noted)
    pictures = speculation_picture.draw(points, headline)
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
