"""`asperf placement`: on which device Core ML plans to run a model."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from pytest_asperf.commands.console import json_text, print_sections, stderr_console
from pytest_asperf.commands.options import command, reports, written
from pytest_asperf.config.setting_rules import ReportTarget

#: Operators that are listed as not on the Neural Engine.
_LISTED: Final = 8


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--units", metavar="UNITS", default="ALL", help="The devices that Core ML may use.")
@click.option("--function", metavar="NAME", help="Function to plan, for a model with several.")
@reports("json")
def placement(
    file: Path, units: str, function: str | None, reports: Sequence[ReportTarget]
) -> None:
    """Show on which device Core ML plans a model's operations, weighted by estimated cost.

    FILE is a .mlpackage or .mlmodelc. On a Mac with macOS 14.4 or newer; needs coremltools.
    """
    from pytest_asperf.analysis.stats.estimate import percent_text
    from pytest_asperf.api.measurement_context import unknown_word
    from pytest_asperf.hardware.compute_plan import DEVICES, UNITS, read_plan
    from pytest_asperf.records.codec import encode
    from pytest_asperf.report.sections import CheckLine, Section
    from pytest_asperf.verdicts.placement import ladder

    if units not in UNITS:
        raise unknown_word("--units", units, UNITS)
    with stderr_console().status("Core ML makes its plan"):
        plan = read_plan(file, units=units, function=function)
    shares = {device: plan.share(device) for device in DEVICES}
    known = {device: encode(share) for device, share in shares.items()}
    data = {"schema": 1, "file": str(file), **asdict(plan), "shares": known}
    if written(reports, {"json": lambda: json_text(data)}):
        return
    planned = []
    for device, share in shares.items():
        count = f"{len(plan.on(device))} of {len(plan.operations)} operations"
        planned.append(CheckLine(device, "measured", f"{share} of the cost, {count}"))
    for operator, other, cost in plan.elsewhere("ANE")[:_LISTED]:
        text = f"{percent_text(cost)}, {operator}"
        planned.append(CheckLine(f"not on ANE ({other or 'no device'})", "measured", text))
    seen = [CheckLine(f.guard, "invalid", f.found, f.remedy) for f in plan.guard_findings]
    observed = list(ladder("ANE").items())[1:]
    seen += [CheckLine(name, "unknown", verdict.problem) for name, verdict in observed]
    sections = Section("planned", tuple(planned)), Section("what ran", tuple(seen))
    last_line = f"planned by {plan.made}; a test with model.placement(…, observed=…) shows what ran"
    print_sections(sections, last_line=last_line)
