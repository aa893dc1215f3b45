"""`asperf gate`: compares two builds on the workloads in which real regressions went unnoticed.

What only this command needs is imported in it: numpy and scipy would make every `asperf --help`
wait.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pytest_asperf.commands.command_words import in_own_words
from pytest_asperf.commands.console import CommandNotify, print_error, stderr_console
from pytest_asperf.commands.gate_output import (
    gate_document,
    print_outcome,
    print_plan,
    print_progress,
    write_outcome,
)
from pytest_asperf.commands.gate_request import GateOptions, read_request
from pytest_asperf.commands.history_store import GateHistory
from pytest_asperf.commands.options import (
    USAGE,
    BuildArgument,
    Chunks,
    CurrentPython,
    EngineName,
    MaxPplDelta,
    ModelOption,
    Nice,
    Seed,
    Store,
    Tolerance,
    Wait,
    WorkloadOption,
)
from pytest_asperf.commands.report_targets import read_targets
from pytest_asperf.errors import (
    AsperfError,
    ConfigError,
    ModelError,
)
from pytest_asperf.store.unsent import check_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.runner import MeasurementRunner


def gate_builds(
    base: Annotated[
        str | None, BuildArgument(metavar="BASE", help="The build to compare with.")
    ] = None,
    candidate: Annotated[
        str | None, BuildArgument(metavar="CAND", help="The build that is judged.")
    ] = None,
    *,
    models: Annotated[
        list[str] | None,
        ModelOption("--model", metavar="ADDRESS", help="A model to gate on; repeatable."),
    ] = None,
    workloads: Annotated[
        list[str] | None,
        WorkloadOption(
            "--workload",
            "--workloads",
            metavar="NAME,...",
            help="pp512, tg128@d4096, ttft512, ppl, logits, ppl@d1024, sd; default: all cells in "
            "which real regressions went unnoticed.",
        ),
    ] = None,
    draft: Annotated[
        str | None,
        ModelOption("--draft", metavar="ADDRESS", help="Draft that sd speculates with, or ngram."),
    ] = None,
    tolerance: Tolerance = None,
    faster_by: Annotated[
        str | None,
        typer.Option(
            "--faster-by",
            metavar="SHARE",
            help="Claim that every timed cell is faster by that much, in place of the tolerance.",
        ),
    ] = None,
    max_ppl_delta: MaxPplDelta = "1%",
    max_pairs: Annotated[
        int | None,
        typer.Option("--max-pairs", min=1, metavar="N", help="Pairs of one cell, at most [120]."),
    ] = None,
    max_seconds: Annotated[
        int | None,
        typer.Option("--max-seconds", min=1, metavar="S", help="Seconds of all cells [300]."),
    ] = None,
    chunks: Chunks = None,
    seed: Seed = None,
    engine: EngineName = None,
    python: CurrentPython = None,
    nice: Nice = None,
    wait: Wait = None,
    summary: Annotated[
        Path | None,
        typer.Option("--summary", metavar="FILE", help="Write Markdown for a pull request."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option("--report", metavar="FORMAT:FILE", help="Write html, csv, …; repeatable."),
    ] = None,
    store: Store = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="List the cells, and measure nothing.")
    ] = False,
) -> None:
    """Compare two builds: speed, PPL, logits and speculation.

    Exits with 0 if every cell is a PASS, with 1 if one is a FAIL, else with 4 if one is INVALID
    or could not be run, else with 2 for INCONCLUSIVE; with 3 if the command is not usable as typed.
    """
    from pytest_asperf.engine_process import engine_priority
    from pytest_asperf.gate.summary import NOT_MEASURED

    options = GateOptions(
        base,
        candidate,
        tuple(models or ()),
        tuple(workloads or ()),
        draft,
        engine,
        max_ppl_delta,
        faster_by,
    )
    console = stderr_console()
    began = time.time()
    try:
        project = options.open_project(
            python=python,
            tolerance=tolerance,
            max_pairs=max_pairs,
            max_seconds=max_seconds,
            chunks=chunks,
            seed=seed,
            nice=nice,
            wait=wait,
            store=store,
        )
        targets = read_targets(report or (), "--report", ("md", summary), ("json", json_file))
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
    except (ConfigError, ModelError) as error:
        print_error(error)
        raise typer.Exit(USAGE) from None
    except AsperfError as error:
        print_error(error)
        raise typer.Exit(NOT_MEASURED) from None
    from pytest_asperf.report import github

    print_outcome(outcome)
    if targets or project.settings.store or github.is_job():
        data = made(outcome)
        write_outcome(data, targets)
        history.store(data, kind="gate")
    raise typer.Exit(outcome.exit_code)


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
            results.append(_reworded(result))
            if result.word != Outcome.PASS or not console.is_terminal:
                print_progress(console, result, len(results), len(plan.cells))
            on_cell(so_far())
    except KeyboardInterrupt:
        interrupted = True
    return so_far()


def _reworded(result: CellResult) -> CellResult:
    """The result with its advice in the command's own options."""
    if result.error is not None:
        result.error.reword(in_own_words)
    if result.verdict is None:
        return result
    return replace(result, verdict=result.verdict.reworded(in_own_words))
