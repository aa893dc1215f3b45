"""`asperf findings`: lists the published findings."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from typing import Annotated

import typer

from pytest_asperf.commands.project import open_project


def list_findings(
    *,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of them as a page in Markdown.")
    ] = False,
) -> None:
    """List the published findings, with the verdict of the recorded figures on each."""
    from pytest_asperf.commands.findings_page import listing

    typer.echo(listing(open_project().settings, as_markdown=as_markdown))
