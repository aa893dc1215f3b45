"""`asperf doctor`: what is detected here, and what would disturb a measurement."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from pytest_asperf.commands.console import print_json, print_sections, print_waiting, stderr_console
from pytest_asperf.commands.options import CANNOT_MEASURE, AsJson, Python
from pytest_asperf.commands.project import open_project


def doctor(
    *,
    python: Python = None,
    measure_bandwidth: Annotated[
        bool,
        typer.Option("--measure-bandwidth", help="Measure the memory bandwidth now (2 to 8 s)."),
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="Start the interpreter and programs that asperf.toml names."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what is detected, and what would disturb a measurement.

    The interpreter and programs that only the project's file names are not started without --run.

    Exits with 0 if a measurement could run, with 1 if that is impossible or not known.
    """
    from pytest_asperf.commands.examination import examine
    from pytest_asperf.config.engines import EXTRAS, SERVER_ENGINES

    project = open_project(python=python)
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
    if as_json:
        print_json(examination.as_dict())
    else:
        print_sections(examination.sections, last_line=examination.headline)
    if not examination.is_ready:
        raise typer.Exit(CANNOT_MEASURE)
