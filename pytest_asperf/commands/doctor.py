"""`asperf doctor`: detected hardware and engines, and disturbances of a measurement."""

from collections.abc import Sequence
from functools import partial

import click

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import json_text, print_sections, print_waiting, stderr_console
from pytest_asperf.commands.options import command, end, reports, settings, written
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.setting_rules import ReportTarget


@command()
@settings()
@click.option(
    "--measure-bandwidth", is_flag=True, help="Measure the memory bandwidth now (2 to 8 s)."
)
@click.option("--run", is_flag=True, help="Start the interpreter and binaries of asperf.toml.")
@reports("json")
def doctor(*, measure_bandwidth: bool, run: bool, reports: Sequence[ReportTarget]) -> None:
    """List detected hardware and engines, and disturbances of a measurement.

    Without --run, the interpreter and binaries that only the project's file names are not started.

    Exits with 0 if a measurement could run, with 4 if that is impossible or unknown.
    """
    from pytest_asperf.commands.examination import examine
    from pytest_asperf.config.engines import EXTRAS, SERVER_ENGINES

    project = open_project()
    # A server of an engine's own package is of interest to one who measures it.
    unused = SERVER_ENGINES - {project.settings.engine}
    builds = [project.engine_build(engine) for engine in EXTRAS if engine not in unused]
    if project.settings.tools is not None:
        builds.append(project.engine_build("llama_tools"))
    console = stderr_console()
    with console.status("examining this machine"):
        examination = examine(
            builds,
            project.cache,
            left_out=(lambda _: None) if run else project.only_in_file,
            measure_bandwidth=measure_bandwidth,
            queue=project.queue(partial(print_waiting, console)),
        )
    if not written(reports, {"json": lambda: json_text(examination.as_dict())}):
        print_sections(examination.sections, last_line=examination.headline)
    end(ExitCode.DONE if examination.is_ready else ExitCode.INVALID)
