"""`asperf placement`: on which device Core ML plans to run a model."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_asperf.commands.console import print_json, print_sections, stderr_console
from pytest_asperf.commands.options import AsJson  # noqa: TC001  # Typer reads the annotations

if TYPE_CHECKING:
    from pytest_asperf.hardware.compute_plan import ComputePlan
    from pytest_asperf.report.sections import Section

#: Operators that are listed as not on the Neural Engine.
_LISTED = 8


def show_placement(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .mlpackage or .mlmodelc.")],
    *,
    units: Annotated[
        str, typer.Option("--units", metavar="UNITS", help="What Core ML may use.")
    ] = "ALL",
    function: Annotated[
        str | None, typer.Option("--function", metavar="NAME", help="Of a model with several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show on which device Core ML plans a model's operations, weighted by estimated cost.

    On a Mac with macOS 14.4 or newer; needs coremltools.
    """
    from pytest_asperf.api.measurement_context import unknown_word
    from pytest_asperf.hardware.compute_plan import UNITS, read_plan
    from pytest_asperf.report.rows import estimate_data

    if units not in UNITS:
        raise unknown_word("--units", units, UNITS)
    with stderr_console().status("Core ML makes its plan"):
        plan = read_plan(file, units=units, function=function)
    if as_json:
        shares = {device: estimate_data(plan.share(device)) for device in plan.counts}
        print_json({"schema": 1, "file": str(file), **asdict(plan), "shares": shares})
    else:
        print_sections(_sections(plan), last_line="planned, not observed: assert_placement(…, "
                       "observed=energy(…)) claims what ran")  # fmt: skip


def _sections(plan: ComputePlan) -> list[Section]:
    """The shares, what is not on the Neural Engine, and the evidence of a run, which is missing."""
    from pytest_asperf.analysis.stats.estimate import percent_text
    from pytest_asperf.report.sections import CheckLine, Section
    from pytest_asperf.verdicts.placement import ladder, plan_text

    shares = []
    for device in plan.counts:
        share, count = plan_text(plan, device)
        shares.append(CheckLine(device, "measured", f"{share.text()} of the cost, {count}"))
    others = [
        CheckLine(name, "measured", f"{percent_text(cost)} ({device or 'no device'})")
        for name, device, cost in plan.elsewhere("ANE")[:_LISTED]
    ]
    found = [CheckLine(f.guard, "invalid", f.found, f.rule) for f in plan.guard_findings]
    rungs = [CheckLine(r.name, "unknown", r.text) for r in ladder("ANE")[1:]]
    return [
        Section(f"plan by {plan.release}, units {plan.units}", (*shares, *found)),
        *([Section("not on ANE", tuple(others))] if others else []),
        Section("what ran", tuple(rungs)),
    ]
