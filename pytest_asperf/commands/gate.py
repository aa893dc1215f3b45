"""`asperf gate`: compares two builds on the workloads in which real regressions went unnoticed.

What only this command needs is imported in it: numpy and scipy would make every `asperf --help`
wait.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from pytest_asperf.commands.console import CommandNotify, stderr_console
from pytest_asperf.commands.gate_output import (
    gate_document,
    print_outcome,
    print_plan,
    print_progress,
    write_outcome,
)
from pytest_asperf.commands.gate_request import GateOptions, gated, read_request
from pytest_asperf.commands.options import build_argument, command, end, reports, settings
from pytest_asperf.commands.project import GateHistory
from pytest_asperf.store.unsent import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.runner import MeasurementRunner


@command()
@build_argument("base", required=False)
@build_argument("cand", required=False)
@gated
@click.option(
    "--faster-by",
    metavar="SHARE",
    help="Claim that every timed check is faster by that much, instead of a tolerance.",
)
@settings("tolerance", "max_pairs", "max_seconds", "chunks", "seed", "engine", "store")
@reports()
@click.option("--list", "only_list", is_flag=True, help="List the checks, and measure nothing.")
def gate(reports: Sequence[ReportTarget], only_list: bool, **words: Any) -> None:  # noqa: FBT001
    """Compare two builds: speed, PPL, logits and speculation.

    BASE is the build to compare with, CAND the one that is judged.
    """
    gate_builds(GateOptions(**words), reports, only_list=only_list)


def gate_builds(
    options: GateOptions,
    targets: Sequence[ReportTarget] = (),
    *,
    tolerance: str | None = None,
    only_list: bool = False,
) -> None:
    """Gate, and end with what it came to."""
    from pytest_asperf.engine_process import engine_priority
    from pytest_asperf.report import github

    console = stderr_console()
    began = time.time()
    project = options.open_project(tolerance=tolerance)
    if project.settings.store and not only_list:
        check_store(project.settings.store)
    gate = read_request(options, project)
    made = partial(
        gate_document,
        began=began,
        seed=gate.limits.budget.seed,
        hardware=project.settings.hardware,
    )
    history = GateHistory(project, made)
    with (
        CommandNotify(console) as notify,
        project.runner(gate.engine, notify, baseline=gate.builds[0]) as runner,
    ):
        plan = gate.plan()
        out = Console(highlight=False) if only_list else console
        priority = None if only_list else engine_priority(project.settings.nice)
        noise = runner.noise.calibrations
        print_plan(gate, plan, noise, out, priority=priority, only_list=only_list)
        if only_list:
            return
        outcome = run_cells(gate, plan, runner, console, history.update)
    print_outcome(outcome)
    if targets or project.settings.store or github.is_job():
        data = made(outcome)
        write_outcome(data, targets)
        history.store(data, kind="gate")
    end(outcome.exit_code)


def run_cells(
    gate: GateRequest,
    plan: GatePlan,
    runner: MeasurementRunner,
    console: Console,
    on_cell: Callable[[GateOutcome], None],
) -> GateOutcome:
    """The decided cells; each is told at once, but for passes that the progress line counts.

    `on_cell` gets what there is after each of them.
    """
    from pytest_asperf.analysis.verdict import Outcome
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.judge import judge_cells
    from pytest_asperf.gate.summary import GateOutcome

    began = time.monotonic()
    results: list[CellResult] = []
    interrupted = False
    limits = replace(gate.limits, comparisons=shared_by(plan.cells))
    base, candidate = (build.name for build in gate.builds)

    def so_far() -> GateOutcome:
        cells = tuple(sorted(results, key=lambda result: plan.cells.index(result.cell)))
        elapsed_s = time.monotonic() - began
        return GateOutcome((base, candidate), plan, gate.limits_text, cells, elapsed_s, interrupted)

    try:
        for result in judge_cells(runner, plan.cells, gate.builds, limits):
            interrupted |= result.interrupted
            if result.interrupted and result.word == Outcome.INCONCLUSIVE:
                continue
            results.append(result)
            if result.word != Outcome.PASS or not console.is_terminal:
                print_progress(console, result, len(results), len(plan.cells))
            on_cell(so_far())
    except KeyboardInterrupt:
        interrupted = True
    return so_far()
