"""`asperf gate`: compares two builds on the workloads in which real regressions went unnoticed.

What only this command needs is imported in it: numpy and scipy would make every `asperf --help`
wait.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pytest_asperf.commands.command_words import in_own_words
from pytest_asperf.commands.console import print_error, stderr_console
from pytest_asperf.commands.gate_output import (
    gate_document,
    print_outcome,
    print_plan,
    print_progress,
    write_outcome,
)
from pytest_asperf.commands.gate_request import GateOptions, read_request
from pytest_asperf.commands.history_store import store_report
from pytest_asperf.commands.options import (
    USAGE,
    Chunks,
    CurrentPython,
    EngineName,
    MaxPplDelta,
    Seed,
    Store,
    Tolerance,
    Wait,
)
from pytest_asperf.commands.project import open_project
from pytest_asperf.commands.report_targets import read_targets
from pytest_asperf.errors import (
    AsperfError,
    ConfigError,
    ModelError,
)
from pytest_asperf.store.unsent import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.runner import MeasurementRunner


def gate_builds(
    base: Annotated[
        str | None, typer.Argument(metavar="BASE", help="The build to compare with.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Argument(metavar="CAND", help="The build that is judged.")
    ] = None,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="ADDRESS", help="A model to gate on; repeatable."),
    ] = None,
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "--workloads",
            metavar="NAME,...",
            help="pp512, tg128, tg128@d4096, ttft512, ppl, logits, sd; without it, all the cells "
            "in which regressions have hidden.",
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option("--draft", metavar="ADDRESS", help="Draft that sd speculates with, or ngram."),
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
        bool, typer.Option("--list", help="Say which cells there are, and measure nothing.")
    ] = False,
) -> None:
    """Compare two builds of an engine: speed, PPL, logits and speculation.

    Exits with 0 if every cell is a PASS, with 1 if one is a FAIL, else with 2 if one is
    INCONCLUSIVE, INVALID or could not be run, with 3 if the command is not usable as typed.
    """
    from pytest_asperf.gate.summary import UNDECIDED

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
        project = open_project(
            python=python,
            tolerance=tolerance,
            max_pairs=max_pairs,
            max_seconds=max_seconds,
            chunks=chunks,
            seed=seed,
            wait=wait,
            store=store,
        )
        named = [*(models or ()), project.settings.default_model, *([draft] if draft else [])]
        project = replace(project, catalogue=project.catalogue.telling_apart(named))
        targets = read_targets(report or (), "--report", ("md", summary), ("json", json_file))
        if project.settings.store and not only_list:
            check_store(project.settings.store)
        gate = read_request(options, project)
        with (
            console.status("gating") as status,
            project.runner(gate.engine, console, status, baseline=gate.builds[0]) as runner,
        ):
            plan = gate.plan(runner)
            with _paused(status):
                out = Console(highlight=False) if only_list else console
                known = runner.noise.calibrations
                print_plan(gate, plan, known, out, only_list=only_list)
            if only_list:
                return
            outcome = run_cells(gate, plan, runner, console, status)
    except (ConfigError, ModelError) as error:
        print_error(error)
        raise typer.Exit(USAGE) from None
    except AsperfError as error:
        print_error(error)
        raise typer.Exit(UNDECIDED) from None
    from pytest_asperf.report import github

    print_outcome(outcome)
    settings = project.settings
    if targets or settings.store or github.is_job():
        data = gate_document(outcome, began, gate.limits.budget.seed, settings.hardware)
        write_outcome(data, targets)
        store_report(data, project, kind="gate")
    raise typer.Exit(outcome.exit_code)


@contextmanager
def _paused(status: Status) -> Iterator[None]:
    """Hide the status line while something is printed to the same terminal."""
    status.stop()
    yield
    status.start()


def run_cells(
    gate: GateRequest, plan: GatePlan, runner: MeasurementRunner, console: Console, status: Status
) -> GateOutcome:
    """The decided cells; each is told at once, but for passes where the status line counts them."""
    from pytest_asperf.analysis.verdict import Outcome
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.judge import judge_cells
    from pytest_asperf.gate.summary import GateOutcome

    began = time.monotonic()
    results: list[CellResult] = []
    interrupted = False
    limits = replace(gate.limits, comparisons=shared_by(plan.cells))
    try:
        for result in judge_cells(runner, plan.cells, gate.builds, limits):
            interrupted |= result.interrupted
            if result.interrupted and result.word == Outcome.INCONCLUSIVE:
                continue
            results.append(_reworded(result))
            if result.word != Outcome.PASS or not console.is_terminal:
                with _paused(status):
                    print_progress(console, result, len(results), len(plan.cells))
    except KeyboardInterrupt:
        interrupted = True
    results.sort(key=lambda result: plan.cells.index(result.cell))
    base, candidate = (build.name for build in gate.builds)
    elapsed_s = time.monotonic() - began
    return GateOutcome(
        (base, candidate), plan, gate.limits_text, tuple(results), elapsed_s, interrupted
    )


def _reworded(result: CellResult) -> CellResult:
    """The result with its advice in the command's own options."""
    if result.error is not None:
        result.error.reword(in_own_words)
    verdict = result.verdict and result.verdict.reworded(in_own_words)
    return replace(result, verdict=verdict)
