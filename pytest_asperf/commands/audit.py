"""`asperf audit`: judges the output of other benchmark tools."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import Annotated

import typer
from rich.text import Text

from pytest_asperf.commands.console import print_sections, stderr_console
from pytest_asperf.errors import printable


def audit_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE")],
    *,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME", help="Profile of the machine measured on."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="GGUF", help="A model's file, for bytes per token."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Output that others are paired with."),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--repetitions", min=1, metavar="N", help="Of llama-bench, if its output lacks them."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="SHARE", help="Two-sided, of every interval.")
    ] = 0.90,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read other tools' output: intervals, and whether it is valid.

    Exits with 0 if every file was read and is sound, with 1 if something is INVALID or
    INCONCLUSIVE, else with 2 if a file could not be read.
    """
    from pytest_asperf.audit.known import parse_options
    from pytest_asperf.audit.page import sections
    from pytest_asperf.audit.together import audit

    options = parse_options(hardware, model or (), baseline, repetitions, confidence)
    console = stderr_console()
    with console.status("reading") as status:
        result = audit(files, options, on_file=lambda path: status.update(Text(printable(path))))
    if as_json:
        typer.echo(json.dumps(result.as_dict(), allow_nan=False, indent=2))
    else:
        print_sections(sections(result), last_line=result.headline)
    raise typer.Exit(result.exit_code)
