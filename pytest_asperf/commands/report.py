"""`asperf report`: makes other files of JSON reports."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_asperf.commands.report_targets import read_targets
from pytest_asperf.errors import ConfigError


def report_files(
    files: Annotated[list[Path], typer.Argument(metavar="JSON...")],
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="The page to write.")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="FORMAT:FILE",
            help="html, md, csv, bencher, github-benchmark or plots:FOLDER; repeatable.",
        ),
    ] = None,
) -> None:
    """Make a page, Markdown, CSV and others of JSON reports.

    Reads what pytest --asperf-report=json:FILE and asperf gate --json FILE wrote. FILE may be - for
    the terminal.
    """
    from pytest_asperf.report.formats import WRITERS, write
    from pytest_asperf.report.read_report import read_report_file

    targets = read_targets(to or (), "--to", ("html", html))
    if not targets:
        raise ConfigError(
            "asperf report: no output is named",
            why="nothing would be written",
            remedy="add --html FILE, or --to FORMAT:FILE, such as --to md:-",
        )
    reports = [report for path in files for report in read_report_file(path)]
    for target in targets:
        if target.path == Path("-") and target.format in WRITERS:
            typer.echo(WRITERS[target.format](reports).decode(), nl=False)
            continue
        written = write(target, reports)
        for path in written:
            typer.echo(f"wrote {path}", err=True)
        if not written:
            typer.echo("plots: speculation was not measured, nothing to draw", err=True)
