"""`asperf report`: makes a page of JSON reports."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import Annotated

import typer

from pytest_asperf.commands.gate_output import require_writable
from pytest_asperf.errors import ConfigError


def report_files(
    files: Annotated[list[Path], typer.Argument(metavar="JSON...")],
    *,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write.")],
) -> None:
    """Make one HTML page of JSON reports.

    Reads what pytest --asperf-report=json:FILE and asperf gate --json FILE wrote. The page needs no
    other file.
    """
    from pytest_asperf.report.page import page
    from pytest_asperf.report.read_report import read_report_file

    require_writable(html)
    content = page([read_report_file(path) for path in files])
    try:
        html.write_bytes(content)
    except OSError as error:
        raise ConfigError(
            f"cannot write {html}: {error.strerror}",
            why="there is no page",
            remedy="name a file that can be written",
        ) from None
    typer.echo(f"wrote {html}")
