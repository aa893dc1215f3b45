"""`asperf calibrate`: measures this machine's noise."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from typing import Annotated

import typer

from pytest_asperf.commands.console import CommandNotify, print_sections, stderr_console
from pytest_asperf.commands.options import CANNOT_MEASURE, ModelOption, Python, Wait, WorkloadOption
from pytest_asperf.commands.project import open_project


def calibrate_machine(
    *,
    python: Python = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=5, metavar="N", help="Pairs to run, all of them.")
    ] = 20,
    model: Annotated[
        str, ModelOption("--model", metavar="ADDRESS", help="Model to run.")
    ] = "asperf-target",
    workload: Annotated[
        list[str] | None,
        WorkloadOption("--workload", metavar="NAME", help="What to time; repeatable [tg128]."),
    ] = None,
    wait: Wait = None,
) -> None:
    """Measure this machine's noise, and keep it for gates.

    A build is compared with itself. Says then what the default gate will cost here.

    Exits with 1, and keeps nothing, if other work makes the machine too busy for it.
    """
    from pytest_asperf.commands.calibration import calibrate, gate_cost
    from pytest_asperf.config.workload import parse_workload

    project = open_project(python=python, wait=wait)
    ref = project.catalogue.find(model, where="--model")
    engine = ref.spec.engine or project.settings.engine
    build = project.catalogue.find_build("current", where="asperf calibrate", engine=engine)
    names = dict.fromkeys(workload or ["tg128"])
    workloads = tuple(parse_workload(name, where="--workload", any_cost=True) for name in names)
    with (
        CommandNotify(stderr_console()) as notify,
        project.runner(engine, notify) as runner,
    ):
        result = calibrate(
            runner,
            build,
            ref,
            workloads,
            pairs=pairs,
            tolerance=project.settings.tolerance,
            seed=project.draw_seed(),
        )
        cost = gate_cost(runner, project, engine) if result.is_kept else ()
    print_sections((*result.sections, *cost))
    if not result.is_kept:
        raise typer.Exit(CANNOT_MEASURE)
