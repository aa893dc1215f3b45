"""`asperf gate`: compares two builds on the workloads in which real regressions went unnoticed.

Only this command imports its needs: numpy and scipy would make every `asperf --help` slow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from pytest_asperf.commands.console import (
    CommandNotify,
    columns_on,
    print_priority,
    print_text,
    print_whole,
    stderr_console,
)
from pytest_asperf.commands.gate_request import GateOptions, GateRequest, gated, read_request
from pytest_asperf.commands.options import build_argument, command, end, reports, settings
from pytest_asperf.commands.project import GateHistory
from pytest_asperf.errors import AsperfError, printable
from pytest_asperf.store.unsent import check_store

if TYPE_CHECKING:
    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.noise import Calibration
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.records.report import Report


@command()
@build_argument("base", required=False)
@build_argument("cand", required=False)
@gated
@click.option(
    "--faster-by",
    metavar="SHARE",
    help="Require every timed check to be faster by that much, instead of a tolerance.",
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
    """Gate, and exit with the result's code."""
    from pytest_asperf.report import github

    console = stderr_console()
    began = time.time()
    project = options.open_project(tolerance=tolerance)
    if project.settings.store and not only_list:
        check_store(project.settings.store)
    gate = read_request(options, project)
    made = partial(
        gate_document, began=began, seed=gate.limits.budget.seed, hardware=project.settings.hardware
    )
    history = GateHistory(project, made)
    with (
        CommandNotify(console) as notify,
        project.runner(gate.engine, notify, baseline=gate.builds[0]) as runner,
    ):
        plan = gate.plan(None if only_list else runner)
        out = Console(highlight=False) if only_list else console
        nice = None if only_list else project.settings.nice
        print_plan(gate, plan, runner.noise.calibrations, out, nice=nice)
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
    """The decided checks; each is printed at once, but passes only count in the progress line.

    `on_cell` gets the results so far after each of them.
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


def print_plan(
    gate: GateRequest,
    plan: GatePlan,
    calibrations: Sequence[Calibration],
    out: Console,
    *,
    nice: int | None,
) -> None:
    """Print the comparison, the engines' priority and the cost.

    Without a nice value nothing is to be measured, and each check is printed.
    """
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.schedule import cost_text, expected_costs
    from pytest_asperf.report.gate_text import error_budget

    base, candidate = (printable(build.name) for build in gate.builds)
    n_checks = f"{len(plan.cells)} check{'s' * (len(plan.cells) > 1)}"
    print_text(out, f"gate: {candidate} against {base}, {gate.engine}, {n_checks}")
    is_gain = not gate.limits.budget.is_gate
    print_text(out, f"{gate.limits_text} {error_budget(shared_by(plan.cells), is_gain=is_gain)}.")
    for left_out in plan.left_out:
        print_text(out, f"left out: {left_out.what}: {left_out.reason}")
    budget = gate.limits.budget
    amounts = f"{budget.max_pairs} pairs a check, {budget.max_seconds:g} s in all"
    print_text(out, f"at most {amounts}, seed {budget.seed}")
    only_list = nice is None
    if nice is not None:
        print_priority(out, gate.engine, nice)
    if cost := cost_text(plan.cells, expected_costs(plan.cells, calibrations, budget)):
        print_text(out, cost)
    print_text(out, "")
    for text in _programs(gate, plan) if only_list else ():
        print_text(out, printable(text, 400))
    if only_list and gate.engine == "openai" and not gate.workloads:
        print_text(out, "no request was sent: a llama-server gets further checks, of its answers")
    for cell in plan.cells if only_list else ():
        print_text(out, printable(cell.what), f"{cell.name:12} ")


def _programs(gate: GateRequest, plan: GatePlan) -> Iterator[str]:
    """A line for each program that a gate would run and that this list does not start."""
    from pytest_asperf.commands.models import commands_of
    from pytest_asperf.config.build_sources import Interpreter, declared_text

    for build in dict.fromkeys(gate.builds):
        text = declared_text(build.source)
        if build.source != Interpreter(Path(sys.executable)) and text != build.name:
            yield f"not started: {build.name}, {text}"
    for spec in dict.fromkeys(cell.ref.spec for cell in plan.cells):
        yield from (f"not started: {text}" for text in commands_of(spec))


def print_progress(out: Console, result: CellResult, n_decided: int, n_cells: int) -> None:
    """Print one line of a result that is there, where the summary is not yet."""
    line = f"{n_decided}/{n_cells} {result.word} {result.cell.name} {result.cell.what}"
    print_text(out, printable(line))


def print_outcome(outcome: GateOutcome) -> None:
    """Print the answer, then checks, notes and run records."""
    from pytest_asperf.report.gate_text import text_lines

    out = Console(highlight=False)
    for line in text_lines(outcome, columns_on(out)):
        print_whole(out, line)


def gate_document(
    outcome: GateOutcome, began: float, seed: int, hardware: str = "auto", *, command: str = "gate"
) -> Report:
    """A gate as a report, with when, where and how it ran, and by which command."""
    from pytest_asperf import __version__
    from pytest_asperf.gate.summary import facts, noted
    from pytest_asperf.hardware.in_force import detect, in_force
    from pytest_asperf.records.report import Report
    from pytest_asperf.report.gate_text import UNIT
    from pytest_asperf.report.session_meta import SessionMeta

    args, on = tuple(sys.argv[2:]), in_force(hardware, detect())
    seconds, program = time.time() - began, ("asperf", command)
    meta = SessionMeta(__version__, args, began, seconds, seed, on, program)
    headline = [outcome.answer, f"{outcome.limits} {UNIT}"]
    headline += [f"left out: {left.what}: {left.reason}" for left in outcome.plan.left_out]
    return Report(
        meta=meta.facts(), headline=tuple(headline), rows=noted(outcome), gate=facts(outcome)
    )


def write_outcome(made: Report, targets: Sequence[ReportTarget]) -> None:
    """Write the requested reports, and GitHub's summary in one of its jobs."""
    from pytest_asperf.report import github
    from pytest_asperf.report.formats import write
    from pytest_asperf.report.report_data import shown_report

    report = shown_report(made, name="asperf gate")
    for target in targets:
        try:
            write(target, [report])
        except AsperfError as error:
            message = f"{error.what}; the verdicts above remain valid"
            print_text(stderr_console(), printable(message))
    out = Console(highlight=False)
    for line in github.tell(report) if github.is_job() else ():
        print_whole(out, line)
