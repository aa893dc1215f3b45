"""`asperf nightly`: measures the current build against a fixed baseline, and gates new builds."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import (
    CommandNotify,
    print_error,
    print_priority,
    print_text,
    stderr_console,
)
from pytest_asperf.commands.gate import gate_document, run_cells
from pytest_asperf.commands.gate_request import GateOptions, GateRequest, gated, read_request
from pytest_asperf.commands.options import (
    build_argument,
    code_of,
    command,
    end,
    number_from,
    settings,
)
from pytest_asperf.commands.project import GateHistory, store_address
from pytest_asperf.errors import AsperfError, ConfigError, StoreError, printable

if TYPE_CHECKING:
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.workspace import Workspace
    from pytest_asperf.nightly.record import FactChange, LastNight
    from pytest_asperf.nightly.steps import SeriesState
    from pytest_asperf.records.report import Report
    from pytest_asperf.store.figures import StoredPoint, StoredSeries


#: Outcomes of checks that were not measured. A faster fixed baseline is no fault.
_BROKEN: Final = ("INVALID", "NOT RUN")
_SAME: Final = "nothing changed"
_NOTIFY_S: Final = 60.0


class NightReport:
    """Collects the results of a nightly run that began then, and prints them."""

    def __init__(self, began: float, notify: str | None) -> None:
        self.began = began
        self.exit_code = ExitCode.DONE  #: of the command
        self.missed = 0  #: nights without a measurement since the last one
        self._notify = _words(notify)
        self._error = ""
        self._is_remarkable = False
        self._remarks: list[str] = []
        self._answers: list[str] = []
        self._since = ""
        self._rows: list[tuple[str, str, str]] = []
        self._gate: list[str] = []

    @property
    def headline(self) -> str:
        """The answer in one line."""
        from pytest_asperf.nightly.record import night_text

        when = f"nightly run of {night_text(self.began)}"
        if self._error:
            return f"{when}: not measured: {self._error}"
        said = "; ".join(self._answers)
        if not said and self._since != _SAME:
            said = "nothing got slower"
        return f"{when}: {', '.join(filter(None, (self._since, said)))}"

    @contextmanager
    def out_of_reach(self, what: str) -> Iterator[None]:
        """Go on if the store cannot be read now, and print the missing parts."""
        try:
            yield
        except StoreError as error:
            if not error.may_pass:
                raise
            self._remarks.append(f"{what}: {error.what}")
            self._answer("the store cannot be reached", ExitCode.INVALID)

    def notes(self, unfinished: str) -> None:
        """Note the error of a run that did not end; empty if all did."""
        if unfinished:
            self._remarks.append(unfinished)
            self._is_remarkable = True

    def looks_back(self, last: LastNight | None, unread: Sequence[ConfigError]) -> None:
        """Note the previous run, or None before the first, and stored runs that cannot be read."""
        from pytest_asperf.nightly.record import missed_nights, night_text

        self._since = "first run" if last is None else _SAME
        if unread:
            self._is_remarkable = True
            self._since = "first run that can be read" if last is None else _SAME
            runs = f"{len(unread)} earlier run{'s' * (len(unread) > 1)}"
            self._remarks.append(f"not compared with {runs} of the store: {unread[0].what}")
        if last is not None:
            self.missed = missed_nights(last.time, self.began)
        if last is not None and self.missed:
            self._is_remarkable = True
            nights = f"{self.missed} run{'s' * (self.missed > 1)}"
            self._remarks.append(
                f"{nights} missing: the last one was measured at {night_text(last.time)}"
            )

    def measured(self, outcome: GateOutcome, changes: Sequence[FactChange]) -> None:
        """Note tonight's pairs, and the changes since the last run."""
        self._since = "something changed" if changes else self._since
        self._remarks += [f"changed: {change}" for change in changes]
        from pytest_asperf.report.gate_text import measured_text

        broken = [result for result in outcome.results if result.word in _BROKEN]
        for result in broken:
            self._remarks.append(f"{result.word}: {result.cell.name}: {measured_text(result)}")
        if broken or len(outcome.results) < len(outcome.plan.cells):
            n, whole = len(outcome.results) - len(broken), len(outcome.plan.cells)
            self._answer(f"only {n} of {whole} checks were measured", ExitCode.INVALID)

    def cannot_gate(self, reason: str, exit_code: ExitCode = ExitCode.DONE) -> None:
        """Note the reason why a new build is not gated."""
        self._answer("the changed build was not gated", exit_code)
        self._remarks.append(f"not gated: {reason}; its pairs with the fixed baseline are below")

    def gated(self, outcome: GateOutcome) -> None:
        """Note the gate of tonight's build against the last run's."""
        from pytest_asperf.report.gate_text import summary_rows

        self._gate = [
            f"{row.word:12}  {row.name} {row.what}  {row.measured}  ({row.cost})".rstrip()
            for row in summary_rows(outcome)
        ]
        self._answer(f"the gate of the change is {outcome.answer}", outcome.exit_code)

    def judge_series(self, address: str, made: Report) -> None:
        """Look for steps in the series that tonight added to."""
        from pytest_asperf.nightly.steps import LOOKED_AT, state_of, threshold_of
        from pytest_asperf.store import open_store
        from pytest_asperf.store.figures import LOG_RATIO, figures_of

        ids = {figure.key.id for figure in figures_of(made, "tonight")}
        with open_store(address) as store:
            every = store.series()
            threshold = threshold_of(every)
            for series in every:
                if series.id in ids and series.key.unit == LOG_RATIO:
                    points = store.points(series.id, last=LOOKED_AT)
                    self._judge(series, points[-1], state_of(points, series.key, threshold))

    def _judge(self, series: StoredSeries, last: StoredPoint, state: SeriesState) -> None:
        from pytest_asperf.commands.history_lines import value_text

        title = printable(series.key.title, 60)
        # A run that does not count brings no news. The time of a session is in whole seconds.
        if state.is_new and state.points[-1].time > self.began - 1:
            self._answer(
                f"{title} is {state.text}", ExitCode.FAIL if state.is_slower else ExitCode.DONE
            )
            self._remarks.append(f"to confirm: asperf history confirm {series.id[:8]}")
        self._rows.append((title, value_text(last, series.key.unit), state.text))

    def fails(self, error: AsperfError) -> None:
        """Note an error that ended the run; it is printed already."""
        self.exit_code = code_of(error)
        self._error = error.what

    def lines(self) -> Iterator[str]:
        """The summary."""
        yield printable(self.headline)
        yield from map(printable, self._remarks)
        if self._rows:
            yield ""
            head = ("current / fixed baseline, in time", "this run", "state")
            widths = [max(map(len, column)) for column in zip(head, *self._rows, strict=True)]
            for row in (head, *sorted(self._rows)):
                yield "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
        if self._gate:
            yield ""
            yield "gate of tonight's build against the last run's, in time"
            yield from map(printable, self._gate)

    def send(self) -> None:
        """Run the user's command if there is something to look at; its failure is printed."""
        if self._notify and (self.exit_code or self._is_remarkable):
            problem = _run(self._notify, "\n".join(self.lines()) + "\n")
            if problem:
                print_text(stderr_console(), printable(f"not notified: {problem}"))

    def _answer(self, text: str, exit_code: ExitCode) -> None:
        if text not in self._answers:
            self._answers.append(text)
        # A FAIL decides, then an undecided check.
        if exit_code and self.exit_code != ExitCode.FAIL:
            self.exit_code = exit_code


def _words(command: str | None) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise ConfigError(
            f"--notify: {printable(command)} is not a command: {error}",
            why="a run that needs you would not be noticed",
            remedy="write a program and its arguments, as in --notify 'mail -s asperf me@home'",
        ) from None


def _run(command: Sequence[str], text: str) -> str:
    """Give a program a text; why that did not work, or nothing."""
    try:
        done = subprocess.run(
            command, input=text, text=True, capture_output=True, timeout=_NOTIFY_S, check=False
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {_NOTIFY_S:.0f} s"
    if not done.returncode:
        return ""
    return f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}"


_CURRENT, _NEWEST = "current", "newest"
_OWN: Final = {"max_seconds": "3600"}


@command()
@build_argument("base", required=False)
@build_argument("current", default=_CURRENT)
@gated
@click.option(
    "--pairs",
    type=number_from(5),
    metavar="N",
    default=30,
    help="Pairs of each check, at least 5; all of them are run (default: 30).",
)
@settings("tolerance", "max_seconds", "engine", "store", own=_OWN)
@click.option("--name", metavar="NAME", help="Name of the job (default: that of the folder).")
@click.option(
    "--notify",
    metavar="COMMAND",
    help="Run if the exit code is not 0, or a run is missing or was interrupted; gets the "
    "summary on stdin.",
)
def nightly(
    base: str | None,
    current: str,
    *,
    pairs: int,
    name: str | None,
    notify: str | None,
    **words: Any,
) -> None:
    """Measure the current build against a fixed baseline.

    BASE is a build that stays fixed; CURRENT is the build to watch, or `newest`. A build that
    changed since the last nightly run is gated. A series that became slower is a FAIL.
    """
    options = GateOptions(base, current, arguments=("BASE", "CURRENT"), **words)
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
        print_text(out, line)
    report.send()
    end(report.exit_code)


def _request(options: GateOptions, project: Workspace) -> GateRequest:
    """The request, with the newest release looked up."""
    from pytest_asperf.bisect.candidates import newest_release

    where = "BASE"
    if options.base is None and project.settings.baseline == _CURRENT:
        raise ConfigError(
            "BASE is missing: no build that stays the same over all runs",
            why="with every upgrade of `current` the series would begin again",
            remedy="name a release, as in `asperf nightly llama-cpp-python==0.3.35`, or set "
            "`baseline` in [tool.asperf]",
        )
    if options.cand == _NEWEST:
        named = project.settings.baseline if options.base is None else options.base
        base = project.catalogue.find_build(named, where=where)
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
    """Measure tonight's pairs, gate a changed build, and store both."""
    from pytest_asperf.hardware.readiness import readiness
    from pytest_asperf.nightly.record import (
        changes_between,
        facts_of,
        last_night,
        one_at_a_time,
        restorable,
    )
    from pytest_asperf.records.report import NightlyFacts
    from pytest_asperf.store.unsent import check_store

    address = str(project.settings.store)
    check_store(address)
    with one_at_a_time(project.cache, name, report.began) as unfinished:
        last = None
        with report.out_of_reach("the last run is not known"):
            last, unread = last_night(address, name)
            report.looks_back(last, unread)
        report.notes(unfinished)
        power = next((c.detail for c in readiness() if c.name == "power mode"), "unknown")
        budget = replace(gate.limits.budget, min_pairs=pairs, max_pairs=pairs)
        paired = replace(gate, limits=replace(gate.limits, budget=budget))
        history = _history(paired, report, project)
        print_priority(stderr_console(), gate.engine, project.settings.nice)
        outcome = _gated(paired, project, history)
        if outcome.interrupted:
            raise KeyboardInterrupt
        made = history.made(outcome)
        facts = facts_of(made, power)
        changes = changes_between(last.facts, facts) if last else []
        report.measured(outcome, changes)
        build = restorable(gate.builds[1], made)
        notes = NightlyFacts(
            job=name,
            facts=facts,
            changes=tuple((change.label, change.before, change.now) for change in changes),
            missed=report.missed,
            unfinished=unfinished,
            build=build,
            answer=report.headline,
        )
        history.store(replace(made, nightly=notes), kind="nightly")
        before = last and last.named(facts, anchor=gate.builds[0].name)
        if before == build:
            report.cannot_gate(f"the build of the last run was named {build} too, and is gone")
        elif before:
            _gate_change(gate, replace(options, base=before), project, report)
        with report.out_of_reach("the series were not examined"):
            report.judge_series(address, made)


def _gate_change(
    gate: GateRequest, options: GateOptions, project: Workspace, report: NightReport
) -> None:
    """Gate tonight's build against the last run's."""
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
    """The checks of a gate; progress is shown on a terminal only."""
    with (
        CommandNotify(stderr_console()) as notify,
        project.runner(gate.engine, notify, baseline=gate.builds[0]) as runner,
    ):
        return run_cells(gate, gate.plan(runner), runner, Console(quiet=True), history.update)
