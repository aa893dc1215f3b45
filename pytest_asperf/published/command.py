"""`asperf findings`: lists the published findings, or explains one."""

# ruff: noqa: PLC0415  # `asperf --help` would wait for numpy and scipy

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pytest_asperf.analysis.outcome import Outcome  # noqa: TC001  # Typer reads the annotations
from pytest_asperf.commands.completion import of_project
from pytest_asperf.commands.console import print_json, print_sections
from pytest_asperf.commands.options import AsJson  # noqa: TC001  # Typer reads it
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.commands.project import Project


def finding_ids(incomplete: str) -> list[str]:
    """IDs of published findings that begin so."""
    from pytest_asperf.published.findings import load_findings

    def names(project: Project) -> Iterator[str]:
        found = load_findings(project.settings.findings, project.settings.records)
        return (finding.id for finding in found.findings)

    return of_project(incomplete, names)


def list_findings(
    finding_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Explain one finding.", autocompletion=finding_ids),
    ] = None,
    *,
    verdict: Annotated[
        Outcome | None,
        typer.Option("--verdict", case_sensitive=False, help="Only those of this verdict."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME|auto",
            help="Only those about this profile or chip, or about any; auto is this machine.",
        ),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of them as a page in Markdown.")
    ] = False,
) -> None:
    """List the published findings with their recorded verdicts.

    With an ID, explains that finding: its figures, where they were published, and how to measure
    it on this machine. The list names the IDs.
    """
    from pytest_asperf.hardware.detect import detect
    from pytest_asperf.hardware.in_force import in_force
    from pytest_asperf.published.findings import judge_recorded, load_findings
    from pytest_asperf.published.pages import explained, finding_data, listing, markdown

    filters = [word for word in (finding_id, verdict, hardware) if word is not None]
    if as_markdown and (as_json or filters):
        raise ConfigError(
            "--markdown prints the page of all findings",
            why="the other options choose some of them, or another format",
            remedy="leave --markdown out, or the others",
        )
    settings = open_project().settings
    findings = load_findings(settings.findings, settings.records)
    if as_markdown:
        typer.echo(markdown(findings).rstrip("\n"))
        return
    about = None if hardware is None else in_force(hardware, detect(), option="--hardware")
    one = finding_id and findings.find(finding_id, where="asperf findings")
    found = [
        (finding, judge_recorded(finding, findings.evidence))
        for finding in ([one] if one else findings.findings)
        if about is None or about.is_one_of(finding.hardware)
    ]
    found = [item for item in found if verdict in {None, item[1].outcome}]
    if as_json:
        print_json([finding_data(*item, findings) for item in found])
    elif one:
        print_sections([explained(*item, findings) for item in found])
    else:
        typer.echo(listing(found, findings))
