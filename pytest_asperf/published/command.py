"""`asperf findings`: lists the published findings, or explains one."""

from collections.abc import Iterator, Sequence

import click

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.commands.console import json_text, print_sections
from pytest_asperf.commands.options import command, of_project, reports, written
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.workspace import Workspace


def finding_ids(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """IDs of published findings that begin so."""
    from pytest_asperf.published.findings import load_findings

    def names(project: Workspace) -> Iterator[str]:
        found = load_findings(project.settings.findings, project.settings.published_figures)
        return (finding.id for finding in found.findings)

    return of_project(incomplete, names)


@command()
@click.argument("id", required=False, shell_complete=finding_ids)
@click.option(
    "--verdict",
    type=click.Choice(list(Outcome), case_sensitive=False),
    metavar="VERDICT",
    help="Only those with this verdict: pass, fail, inconclusive or invalid.",
)
@click.option(
    "--hardware",
    metavar="NAME|auto",
    help="Only those about this profile or chip, or about any; auto is this machine.",
)
@reports("json", "md")
def findings(
    id: str | None,  # noqa: A002  # the argument's name in the help
    verdict: Outcome | None,
    hardware: str | None,
    reports: Sequence[ReportTarget],
) -> None:
    """List published findings, each with the verdict on its figures.

    With an ID, explains that finding: its figures, where they were published, and how to measure
    it on this machine. The list names the IDs.
    """
    from pytest_asperf.hardware.in_force import detect, in_force
    from pytest_asperf.published.findings import judge_recorded, load_findings
    from pytest_asperf.published.pages import explained, finding_data, listing, markdown

    filters = [word for word in (id, verdict, hardware) if word is not None]
    if filters and any(target.format == "md" for target in reports):
        raise ConfigError(
            "--report md: is the page of all findings, and the other options choose some of them",
            remedy="leave out the report, or the other options",
        )
    settings = open_project().settings
    known = load_findings(settings.findings, settings.published_figures)
    about = None if hardware is None else in_force(hardware, detect())
    one = id and known.find(id, where="asperf findings")
    found = [
        (finding, judge_recorded(finding, known.evidence))
        for finding in ([one] if one else known.findings)
        if about is None or about.is_one_of(finding.hardware)
    ]
    found = [item for item in found if verdict in {None, item[1].outcome}]

    def data() -> str:
        return json_text([finding_data(*item, known) for item in found])

    if written(reports, {"json": data, "md": lambda: markdown(known)}):
        return
    if one:
        print_sections([explained(*item, known) for item in found])
    else:
        click.echo(listing(found, known))
