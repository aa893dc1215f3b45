"""What `asperf gate` prints, and the files that it writes."""

# ruff: noqa: PLC0415  # numpy and scipy would make every `asperf --help` wait

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from rich.console import Console

from pytest_asperf.commands.console import print_text, print_whole, stderr_console
from pytest_asperf.errors import ConfigError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.surroundings import Calibration

_STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"


def print_plan(
    gate: GateRequest,
    plan: GatePlan,
    calibrations: Sequence[Calibration],
    out: Console,
    *,
    only_list: bool,
) -> None:
    """Print what will be compared and what that will cost, and with `only_list` each cell."""
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.cost import cost_text, expected_costs
    from pytest_asperf.gate.summary import error_budget

    base, candidate = (printable(build.name) for build in gate.builds)
    n_cells = f"{len(plan.cells)} cell{'s' * (len(plan.cells) > 1)}"
    print_text(out, f"gate: {candidate} against {base}, {gate.engine}, {n_cells}")
    is_gain = not gate.limits.budget.is_gate
    print_text(out, f"{gate.limits_text} {error_budget(shared_by(plan.cells), is_gain=is_gain)}.")
    for left_out in plan.left_out:
        print_text(out, f"left out: {left_out.what}: {left_out.reason}")
    budget = gate.limits.budget
    amounts = f"{budget.max_pairs} pairs a cell, {budget.max_seconds:g} s in all"
    print_text(out, f"at most {amounts}, --seed={budget.seed}")
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
    from pytest_asperf.gate.pages import text_lines

    out = Console(highlight=False)
    for line in text_lines(outcome, out.width if out.is_terminal else None):
        print_whole(out, line)


def require_writable(path: Path | None) -> None:
    """Refuse a file whose folder does not exist, before anything is measured."""
    if path is not None and (not path.parent.is_dir() or path.is_dir()):
        raise ConfigError(
            f"cannot write {path}: "
            + ("it is a folder" if path.is_dir() else "its folder does not exist"),
            why="the report would be lost after everything was measured",
            remedy="name a file in a folder that exists",
        )


def gate_document(outcome: GateOutcome, began: float, seed: int) -> dict[str, object]:
    """A gate as plain data, with when, where and how it ran."""
    from pytest_asperf import __version__
    from pytest_asperf.gate.summary import document
    from pytest_asperf.hardware.detect import detect
    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.report.session_meta import SessionMeta

    hardware = Hardware(detect())
    args = tuple(sys.argv[1:])
    meta = SessionMeta(__version__, args, began, outcome.elapsed_s, seed, hardware, "asperf")
    data = {**document(outcome), "meta": meta.as_dict()}
    return cast("dict[str, object]", json.loads(json.dumps(data, default=str)))


def write_outcome(
    outcome: GateOutcome, data: Mapping[str, object], summary: Path | None, json_file: Path | None
) -> None:
    """Write the files that were named, and the summary that GitHub shows of a job."""
    from pytest_asperf.gate.pages import markdown

    text = markdown(outcome)
    step = os.environ.get(_STEP_SUMMARY)
    if summary is not None:
        _put(summary, text)
    if step:
        _put(Path(step), text, mode="a")
    if json_file is not None:
        _put(json_file, json.dumps(data, indent=2) + "\n")


def _put(path: Path, text: str, *, mode: str = "w") -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        message = f"{path} could not be written: {error.strerror}; the verdicts above stand"
        print_text(stderr_console(), printable(message))
