"""`asperf nightly`: measures the current build against an anchor, and gates what changed."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from pytest_asperf.commands.console import CommandNotify, print_error, print_whole, stderr_console
from pytest_asperf.commands.gate import run_cells
from pytest_asperf.commands.gate_output import gate_document
from pytest_asperf.commands.gate_request import GateOptions, read_request
from pytest_asperf.commands.history_store import GateHistory, store_address
from pytest_asperf.commands.nightly_report import NightReport
from pytest_asperf.commands.nightly_units import UnitName, print_unit
from pytest_asperf.commands.options import (
    USAGE,
    BuildArgument,
    Chunks,
    CurrentPython,
    EngineName,
    MaxPplDelta,
    ModelOption,
    Seed,
    Store,
    Tolerance,
    Wait,
    WorkloadOption,
)
from pytest_asperf.errors import AsperfError, ConfigError, ModelError

if TYPE_CHECKING:
    from pytest_asperf.commands.gate_request import GateRequest
    from pytest_asperf.commands.project import Project
    from pytest_asperf.gate.summary import GateOutcome

_UNDECIDED: Final = 2
_CURRENT, _NEWEST = "current", "newest"


def nightly(
    anchor: Annotated[
        str | None,
        BuildArgument(metavar="ANCHOR", help="A build that stays the same over the nights."),
    ] = None,
    current: Annotated[
        str,
        BuildArgument(metavar="CURRENT", help="The build that is watched; or newest."),
    ] = _CURRENT,
    *,
    models: Annotated[
        list[str] | None,
        ModelOption("--model", metavar="ADDRESS", help="A model to measure; repeatable."),
    ] = None,
    workloads: Annotated[
        list[str] | None,
        WorkloadOption("--workload", "--workloads", metavar="NAME,...", help="As asperf gate."),
    ] = None,
    draft: Annotated[
        str | None, ModelOption("--draft", metavar="ADDRESS", help="As asperf gate.")
    ] = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=5, metavar="N", help="Pairs of each cell, all of them.")
    ] = 30,
    max_seconds: Annotated[
        int, typer.Option("--max-seconds", min=1, metavar="S", help="Seconds of all cells.")
    ] = 3600,
    tolerance: Tolerance = None,
    max_ppl_delta: MaxPplDelta = "1%",
    chunks: Chunks = None,
    seed: Seed = None,
    engine: EngineName = None,
    python: CurrentPython = None,
    wait: Wait = None,
    store: Store = None,
    store_keep: Annotated[
        int | None,
        typer.Option(
            "--store-keep",
            min=1,
            metavar="DAYS",
            help="Remove older sessions from the history, except those that a state is based on.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the job [that of the folder]."),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="COMMAND",
            help="Run if the exit code is not 0 or a night is missing or was interrupted; gets the "
            "summary on stdin.",
        ),
    ] = None,
    unit: Annotated[
        UnitName | None,
        typer.Option("--print-unit", help="Print a file that runs this command every night."),
    ] = None,
) -> None:
    """Measure the current build against an anchor, every night.

    Gates what changed since the last night.

    Exits with 0 if nothing got slower, with 1 if a gate is a FAIL or a series has become
    slower, with 2 if something could not be measured, with 3 if the command is not usable as typed.
    """
    if unit is not None:
        print_unit(unit)
        return
    began = time.time()
    options = GateOptions(
        anchor,
        current,
        tuple(models or ()),
        tuple(workloads or ()),
        draft,
        engine,
        max_ppl_delta,
        arguments=("ANCHOR", "CURRENT"),
    )
    try:
        report = NightReport(began, notify)
    except ConfigError as error:
        print_error(error)
        raise typer.Exit(USAGE) from None
    try:
        project = options.open_project(
            python=python,
            tolerance=tolerance,
            max_seconds=max_seconds,
            chunks=chunks,
            seed=seed,
            wait=wait,
            store=store_address(store),
            store_keep=store_keep,
        )
        gate = _request(options, project)
        _measure(gate, options, project, report, pairs=pairs, name=name or Path.cwd().name)
    except AsperfError as error:
        print_error(error)
        usage = isinstance(error, ConfigError | ModelError)
        report.fails(error, USAGE if usage else _UNDECIDED)
    from pytest_asperf.report import github

    out, lines = Console(highlight=False), list(report.lines())
    # Indented lines are a code block: nothing in them is Markdown.
    block = "".join(f"    {line}\n" for line in lines)
    for line in (*lines, *github.add_to_summary(f"\n{block}\n".encode())):
        print_whole(out, line)
    report.send()
    raise typer.Exit(report.exit_code)


def _request(options: GateOptions, project: Project) -> GateRequest:
    """What is measured, the newest release looked up."""
    from pytest_asperf.bisect.candidates import newest_release

    where = "ANCHOR"
    if options.base is None and project.settings.baseline == _CURRENT:
        raise ConfigError(
            "ANCHOR is missing: no build that stays the same over the nights",
            why="with every upgrade of `current` the series would begin again",
            remedy="name a release, as in: asperf nightly llama-cpp-python==0.3.35; or set "
            "`baseline` in [tool.asperf]",
        )
    if options.candidate == _NEWEST:
        base = project.catalogue.find_build(options.base or project.settings.baseline, where=where)
        options = replace(options, candidate=newest_release(base, where=where))
    return read_request(options, project)


def _measure(
    gate: GateRequest,
    options: GateOptions,
    project: Project,
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
    project: Project,
    report: NightReport,
) -> None:
    """Gate tonight's build against last night's."""
    try:
        changed = read_request(replace(options, candidate=gate.builds[1].name), project)
        history = _history(changed, report, project)
        outcome = _gated(changed, project, history)
    except AsperfError as error:  # tonight's pairs are stored, and their series are to be judged
        report.cannot_gate(error.what, exit_code=_UNDECIDED)
        return
    report.gated(outcome)
    history.store(history.made(outcome), kind="gate")


def _history(gate: GateRequest, report: NightReport, project: Project) -> GateHistory:
    made = partial(
        gate_document,
        began=report.began,
        seed=gate.limits.budget.seed,
        hardware=project.settings.hardware,
        command="nightly",
    )
    return GateHistory(project, made)


def _gated(gate: GateRequest, project: Project, history: GateHistory) -> GateOutcome:
    """The cells of a gate; progress is shown on a terminal only."""
    with (
        CommandNotify(stderr_console()) as notify,
        project.runner(gate.engine, notify, baseline=gate.builds[0]) as runner,
    ):
        return run_cells(gate, gate.plan(), runner, Console(quiet=True), history.update)
