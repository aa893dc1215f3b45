"""`asperf nightly`: measures the current build against an anchor, and gates what changed."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import CommandNotify, print_error, print_whole, stderr_console
from pytest_asperf.commands.gate import run_cells
from pytest_asperf.commands.gate_output import gate_document
from pytest_asperf.commands.gate_request import GateOptions, gated, read_request
from pytest_asperf.commands.history_store import GateHistory, store_address
from pytest_asperf.commands.nightly_report import NightReport
from pytest_asperf.commands.options import build_argument, command, end, settings
from pytest_asperf.errors import AsperfError, ConfigError

if TYPE_CHECKING:
    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.workspace import Workspace

_CURRENT, _NEWEST = "current", "newest"
_OWN: Final = {"max_seconds": "3600"}


@command()
@build_argument("anchor", required=False)
@build_argument("current", default=_CURRENT)
@gated
@click.option(
    "--pairs",
    type=click.IntRange(5),
    metavar="N",
    default=30,
    help="Pairs of each check, all of them (default: 30).",
)
@settings("tolerance", "max_seconds", "engine", "store", own=_OWN)
@click.option("--name", metavar="NAME", help="Name of the job (default: that of the folder).")
@click.option(
    "--notify",
    metavar="COMMAND",
    help="Run if the exit code is not 0 or a night is missing or was interrupted; gets the "
    "summary on stdin.",
)
def nightly(
    anchor: str | None,
    current: str,
    *,
    pairs: int,
    name: str | None,
    notify: str | None,
    **words: Any,
) -> None:
    """Measure the current build against a fixed baseline, every night.

    ANCHOR is a build that stays the same; CURRENT is the build that is watched, or `newest`.
    Gates what changed since the last nightly run. A series that became slower is a FAIL.
    """
    options = GateOptions(anchor, current, arguments=("ANCHOR", "CURRENT"), **words)
    report = NightReport(time.time(), notify)
    try:
        store = store_address()
        project = options.open_project({"max_seconds": int(_OWN["max_seconds"])}, store=store)
        gate = _request(options, project)
        _measure(gate, options, project, report, pairs=pairs, name=name or Path.cwd().name)
    except AsperfError as error:
        print_error(error)
        report.fails(error)
    from pytest_asperf.report import github

    out, lines = Console(highlight=False), list(report.lines())
    # Indented lines are a code block: nothing in them is Markdown.
    block = "".join(f"    {line}\n" for line in lines)
    for line in (*lines, *github.add_to_summary(f"\n{block}\n".encode())):
        print_whole(out, line)
    report.send()
    end(report.exit_code)


def _request(options: GateOptions, project: Workspace) -> GateRequest:
    """The request, with the newest release looked up."""
    from pytest_asperf.bisect.candidates import newest_release

    where = "ANCHOR"
    if options.base is None and project.settings.baseline == _CURRENT:
        raise ConfigError(
            "ANCHOR is missing: no build that stays the same over the nights",
            why="with every upgrade of `current` the series would begin again",
            remedy="name a release, as in: asperf nightly llama-cpp-python==0.3.35; or set "
            "`baseline` in [tool.asperf]",
        )
    if options.cand == _NEWEST:
        base = project.catalogue.find_build(options.base or project.settings.baseline, where=where)
        options = replace(options, cand=newest_release(base, where=where))
    return read_request(options, project)


def _measure(
    gate: GateRequest,
    options: GateOptions,
    project: Workspace,
    report: NightReport,
    *,
    pairs: int,
    name: str,
) -> None:
    """Measure tonight's pairs, gate what changed, and store both."""
    from pytest_asperf.hardware.readiness import readiness
    from pytest_asperf.nightly.night import changes_between, facts_of, restorable
    from pytest_asperf.nightly.record import last_night, one_at_a_time
    from pytest_asperf.records.report import NightFacts
    from pytest_asperf.store.unsent import check_store

    address = str(project.settings.store)
    check_store(address)
    with one_at_a_time(project.cache, name, report.began) as unfinished:
        last = None
        with report.out_of_reach("the last night is not known"):
            last = last_night(address, name)
            report.looks_back(last)
        report.notes(unfinished)
        power = next((c.detail for c in readiness() if c.name == "power mode"), "unknown")
        budget = replace(gate.limits.budget, min_pairs=pairs, max_pairs=pairs)
        paired = replace(gate, limits=replace(gate.limits, budget=budget))
        history = _history(paired, report, project)
        outcome = _gated(paired, project, history)
        if outcome.interrupted:
            raise KeyboardInterrupt
        made = history.made(outcome)
        facts = facts_of(made, power)
        changes = changes_between(last.facts, facts) if last else []
        report.measured(outcome, changes)
        build = restorable(gate.builds[1], made)
        night = NightFacts(
            job=name,
            facts=facts,
            changes=tuple((change.label, change.before, change.now) for change in changes),
            missed=report.missed,
            unfinished=unfinished,
            build=build,
            said=report.headline,
        )
        history.store(replace(made, night=night), kind="nightly")
        before = last and last.named(facts, anchor=gate.builds[0].name)
        if before == build:
            report.cannot_gate(f"the build of last night was named {build} too, and is gone")
        elif before:
            _gate_change(gate, replace(options, base=before), project, report)
        with report.out_of_reach("the series were not examined"):
            report.judge_series(address, made)


def _gate_change(
    gate: GateRequest,
    options: GateOptions,
    project: Workspace,
    report: NightReport,
) -> None:
    """Gate tonight's build against last night's."""
    try:
        changed = read_request(replace(options, cand=gate.builds[1].name), project)
        history = _history(changed, report, project)
        outcome = _gated(changed, project, history)
    except AsperfError as error:  # tonight's pairs are stored, and their series are to be judged
        report.cannot_gate(error.what, ExitCode.INVALID)
        return
    report.gated(outcome)
    history.store(history.made(outcome), kind="gate")


def _history(gate: GateRequest, report: NightReport, project: Workspace) -> GateHistory:
    made = partial(
        gate_document,
        began=report.began,
        seed=gate.limits.budget.seed,
        hardware=project.settings.hardware,
        command="nightly",
    )
    return GateHistory(project, made)


def _gated(gate: GateRequest, project: Workspace, history: GateHistory) -> GateOutcome:
    """The cells of a gate; progress is shown on a terminal only."""
    with (
        CommandNotify(stderr_console()) as notify,
        project.runner(gate.engine, notify, baseline=gate.builds[0]) as runner,
    ):
        return run_cells(gate, gate.plan(), runner, Console(quiet=True), history.update)
