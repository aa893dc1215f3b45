"""`asperf audit`: judges the output of other benchmark tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from pytest_asperf.commands.console import json_text, print_sections, stderr_console
from pytest_asperf.commands.options import command, end, number_from, reports, share, written
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.errors import printable

_PATH = click.Path(path_type=Path)


@command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_PATH)
@click.option("--hardware", metavar="NAME", help="Hardware profile of the output's machine.")
@click.option(
    "--model",
    "models",
    type=_PATH,
    metavar="GGUF",
    multiple=True,
    help="The model's file, for bytes per token; repeatable.",
)
@click.option("--baseline", type=_PATH, metavar="FILE", help="Output that others are paired with.")
@click.option(
    "--repetitions",
    type=number_from(1),
    metavar="N",
    help="Repetitions of llama-bench, if its output lacks them.",
)
@click.option(
    "--confidence",
    type=share,
    metavar="SHARE",
    default=0.90,
    help="Two-sided confidence of every interval (default: 0.90).",
)
@reports("json")
def audit(files: Sequence[Path], reports: Sequence[ReportTarget], **given: Any) -> None:
    """Judge other tools' output: intervals and validity.

    Exits with 0 if every file was read and is sound, with 4 if something is INVALID, with 3 if a
    file could not be read, with 2 if something is INCONCLUSIVE.
    """
    from pytest_asperf.audit import together
    from pytest_asperf.audit.known import parse_options
    from pytest_asperf.audit.together import sections

    options = parse_options(**given)
    console = stderr_console()
    with console.status("reading") as status:
        result = together.audit(
            files, options, on_file=lambda path: status.update(Text(printable(path)))
        )
    if not written(reports, {"json": lambda: json_text(result.as_dict())}):
        print_sections(sections(result), last_line=result.headline)
    end(result.exit_code)
