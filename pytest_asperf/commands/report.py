"""`asperf report`: makes other files of JSON reports."""

from collections.abc import Sequence
from pathlib import Path

import click

from pytest_asperf.commands.options import command, reports
from pytest_asperf.config.setting_rules import ReportTarget


@command()
@click.argument(
    "files", metavar="JSON...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@reports(required=True)
def report(files: tuple[Path, ...], reports: Sequence[ReportTarget]) -> None:
    """Convert JSON reports to HTML, Markdown, CSV or other formats.

    Reads the JSON reports of pytest and of `asperf gate`.
    """
    from pytest_asperf.report.formats import write
    from pytest_asperf.report.report_data import read_report_file

    read = [report for path in files for report in read_report_file(path)]
    for target in reports:
        write(target, read)
        if not target.is_terminal:
            click.echo(f"wrote {target.path}", err=True)
