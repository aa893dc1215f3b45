"""`asperf calibrate`: measures this machine's noise."""

import click

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import (
    CommandNotify,
    print_priority,
    print_sections,
    stderr_console,
)
from pytest_asperf.commands.options import (
    command,
    end,
    model_option,
    number_from,
    settings,
    workload_option,
)
from pytest_asperf.commands.project import open_project


@command()
@click.option(
    "--pairs",
    type=number_from(5),
    metavar="N",
    default=20,
    help="Pairs, at least 5; all of them are run (default: 20).",
)
@model_option("--model", metavar="MODEL", default="asperf-target", help="Model to run.")
@workload_option(
    "--workload",
    "workloads",
    metavar="NAME",
    multiple=True,
    default=["tg128"],
    help="Workload to time; repeatable (default: tg128).",
)
@settings()
def calibrate(pairs: int, model: str, workloads: tuple[str, ...]) -> None:
    """Measure this machine's noise, and keep it for gates.

    A build is compared with itself. The command then prints the default gate's cost here.

    Exits with 4, and keeps nothing, if other work makes the machine too busy for it.
    """
    from pytest_asperf.commands.calibration import gate_cost, measured_noise
    from pytest_asperf.config.workload import parse_workload

    project = open_project()
    ref = project.catalogue.find(model, where="--model")
    engine = ref.spec.engine or project.settings.engine
    build = project.catalogue.find_build("current", where="asperf calibrate", engine=engine)
    named = dict.fromkeys(workloads)
    work = tuple(
        parse_workload(name, where="--workload", any_cost=True, may_be_load=True) for name in named
    )
    console = stderr_console()
    print_priority(console, engine, project.settings.nice)
    with CommandNotify(console) as notify, project.runner(engine, notify) as runner:
        result = measured_noise(
            runner,
            build,
            ref,
            work,
            pairs=pairs,
            tolerance=project.settings.tolerance,
            seed=project.seed,
        )
        cost = gate_cost(runner, project, engine) if result.is_kept else ()
    print_sections((*result.sections, *cost))
    end(ExitCode.DONE if result.is_kept else ExitCode.INVALID)
