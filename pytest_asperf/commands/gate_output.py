"""The output of `asperf gate`, and the files that it writes."""

# ruff: noqa: PLC0415  # numpy and scipy would make every `asperf --help` wait

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
from rich.console import Console

from pytest_asperf.commands.console import print_text, print_whole, stderr_console
from pytest_asperf.commands.options import STDOUT
from pytest_asperf.errors import Advice, AsperfError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.noise import Calibration
    from pytest_asperf.records.report import Report


def print_plan(
    gate: GateRequest,
    plan: GatePlan,
    calibrations: Sequence[Calibration],
    out: Console,
    *,
    priority: str | None,
    only_list: bool,
) -> None:
    """Print what will be compared, at which priority of engines and at what cost.

    With `only_list` also each cell.
    """
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.schedule import cost_text, expected_costs
    from pytest_asperf.gate.summary import error_budget

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
    if priority:
        print_text(out, str(Advice(f"engines run at {priority}; to change that", "nice")))
    if cost := cost_text(plan.cells, expected_costs(plan.cells, calibrations, budget)):
        print_text(out, cost)
    print_text(out, "")
    for cell in plan.cells if only_list else ():
        print_whole(out, f"{cell.name:12} {printable(cell.what)}")


def print_progress(out: Console, result: CellResult, n_decided: int, n_cells: int) -> None:
    """Print one line of a result that is there, where the summary is not yet."""
    line = f"{n_decided}/{n_cells} {result.word} {result.cell.name} {result.cell.what}"
    print_whole(out, printable(line))


def print_outcome(outcome: GateOutcome) -> None:
    """Print the answer, then cells, notes and what ran."""
    from pytest_asperf.gate.summary import text_lines

    out = Console(highlight=False)
    for line in text_lines(outcome, out.width if out.is_terminal else None):
        print_whole(out, line)


def gate_document(
    outcome: GateOutcome,
    began: float,
    seed: int,
    hardware: str = "auto",
    *,
    command: str = "gate",
) -> Report:
    """A gate as a report, with when, where and how it ran, and by which command."""
    from pytest_asperf import __version__
    from pytest_asperf.gate.summary import UNIT, facts, noted
    from pytest_asperf.hardware.detect import detect
    from pytest_asperf.hardware.in_force import in_force
    from pytest_asperf.records.report import Report
    from pytest_asperf.report.session_meta import SessionMeta

    args, on = tuple(sys.argv[2:]), in_force(hardware, detect())
    seconds, program = time.time() - began, ("asperf", command)
    meta = SessionMeta(__version__, args, began, seconds, seed, on, program)
    headline = [outcome.answer, f"{outcome.limits} {UNIT}"]
    headline += [f"left out: {left.what}: {left.reason}" for left in outcome.plan.left_out]
    return Report(
        meta=meta.facts(),
        headline=tuple(headline),
        rows=noted(outcome),
        gate=facts(outcome),
    )


def write_outcome(made: Report, targets: Sequence[ReportTarget]) -> None:
    """Write the reports that were asked for, and tell GitHub, if this is one of its jobs."""
    from pytest_asperf.report import github
    from pytest_asperf.report.formats import WRITERS, write
    from pytest_asperf.report.report_data import shown_report

    report = shown_report(made, name="asperf gate")
    for target in targets:
        try:
            if target.path == STDOUT and target.format in WRITERS:
                click.echo(WRITERS[target.format]([report]).decode(), nl=False)
            else:
                write(target, [report])
        except AsperfError as error:
            message = f"{error.what}; the verdicts above remain valid"
            print_text(stderr_console(), printable(message))
    out = Console(highlight=False)
    for line in github.tell(report) if github.is_job() else ():
        print_whole(out, line)
