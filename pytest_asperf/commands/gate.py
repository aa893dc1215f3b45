"""`asperf gate`: holds one build against another where regressions hide, without a test written.

What only this command needs is imported in it: numpy and scipy would make every `asperf --help`
wait.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from pytest_asperf.commands.command_words import in_own_words
from pytest_asperf.commands.console import print_error, print_text, stderr_console
from pytest_asperf.commands.options import (
    USAGE,
    Chunks,
    CurrentPython,
    EngineName,
    MaxPplDelta,
    Seed,
    Tolerance,
    Wait,
)
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import (
    AsperfError,
    BuildError,
    ConfigError,
    EngineError,
    ModelError,
    printable,
)
from pytest_asperf.measure import compose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

    from pytest_asperf.commands.project import Project
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import Build, ModelRef, Pairing
    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.gate.plan import GatePlan
    from pytest_asperf.gate.summary import CellResult, GateOutcome
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner

_STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
#: Taken for a model's context where its file is not made yet.
_SHORTEST_CONTEXT: Final = 2048


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
    max_ppl_delta: MaxPplDelta = "1%",
    max_pairs: Annotated[
        int | None,
        typer.Option("--max-pairs", min=1, metavar="N", help="Pairs of one cell, at most [60]."),
    ] = None,
    max_seconds: Annotated[
        int | None,
        typer.Option("--max-seconds", min=1, metavar="S", help="Seconds of one cell [300]."),
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
    only_list: Annotated[
        bool, typer.Option("--list", help="Say which cells there are, and measure nothing.")
    ] = False,
) -> None:
    """Compare two builds of an engine: speed, PPL, logits and speculation.

    Exits with 0 if every cell is a PASS, with 1 if one is a FAIL, else with 2 if one is
    INCONCLUSIVE, INVALID or could not be run, with 3 if the command is not usable as typed.
    """
    from pytest_asperf.gate.summary import UNDECIDED

    asked = _GateOptions(
        base, candidate, tuple(models or ()), tuple(workloads or ()), draft, engine
    )
    console = stderr_console()
    try:
        project = open_project(
            python=python,
            tolerance=tolerance,
            max_pairs=max_pairs,
            max_seconds=max_seconds,
            chunks=chunks,
            seed=seed,
            wait=wait,
        )
        named = [*(models or ()), project.settings.default_model, *([draft] if draft else [])]
        project = replace(project, catalogue=project.catalogue.telling_apart(named))
        for file in (summary, json_file):
            _require_writable(file)
        gate = _gate(asked, project, max_ppl_delta)
        with (
            console.status("gating") as status,
            project.runner(gate.engine, console, status, baseline=gate.builds[0]) as runner,
        ):
            plan = gate.plan(runner)
            with _paused(status):
                _print_plan(gate, plan, Console(highlight=False), only_list=only_list)
            if only_list:
                return
            outcome = _run(gate, plan, runner, status)
    except (ConfigError, ModelError) as error:
        print_error(error)
        raise typer.Exit(USAGE) from None
    except AsperfError as error:
        print_error(error)
        raise typer.Exit(UNDECIDED) from None
    _print_outcome(outcome)
    _write(outcome, summary, json_file)
    raise typer.Exit(outcome.exit_code)


@dataclass(frozen=True, slots=True)
class _GateOptions:
    """The words that say what is gated."""

    base: str | None
    candidate: str | None
    models: tuple[str, ...]
    workloads: tuple[str, ...]
    draft: str | None
    engine: str | None


@dataclass(frozen=True, slots=True)
class _Gate:
    """What is gated, every word of it read.

    Attributes:
        builds: baseline and candidate.
        engine: the engine of both.
        models: named by the user, or by default.
        moe: a mixture of experts beside them, None where the models are the user's own.
        pairs: whose speculation is gated.
        workloads: named by the user; none for the default cells.
        budget: what each cell may cost.
        max_ppl_delta: ΔPPL of the same file to stay below, a fraction.
    """

    builds: tuple[Build, Build]
    engine: Engine
    models: tuple[ModelRef, ...]
    moe: ModelRef | None
    pairs: tuple[Pairing, ...]
    workloads: tuple[str, ...]
    budget: Budget
    max_ppl_delta: float

    def plan(self, runner: MeasurementRunner) -> GatePlan:
        """Return the cells; models that are not made yet are made, to know their context."""
        from pytest_asperf.gate.plan import deepest, default_cells, named_cells

        if self.workloads:
            return named_cells(self.models, self.workloads, self.pairs)
        return default_cells(
            self.models,
            self.moe,
            self.engine,
            self.pairs,
            lambda ref: deepest(_context(runner, ref)),
        )


def _gate(asked: _GateOptions, project: Project, max_ppl_delta: str) -> _Gate:
    """Read every word, before anything is measured.

    Raises:
        ConfigError: one is not usable.
    """
    from pytest_asperf.analysis.verdict import parse_percent
    from pytest_asperf.config.engines import parse_engine
    from pytest_asperf.gate.cells import require_workload
    from pytest_asperf.gate.plan import engine_of

    settings = project.settings
    named = None if asked.engine is None else parse_engine(asked.engine, where="--engine")
    builds = _builds(asked, project, named)
    engine = engine_of(named, builds, settings.engine)
    names = [name for word in asked.workloads for name in word.split(",")]
    workloads = tuple(require_workload(name.strip(), where="--workload") for name in names)
    models, moe = _models(asked, project, engine)
    budget = compose.gate_budget(settings, project.draw_seed())
    limit = parse_percent(max_ppl_delta, where="--max-ppl-delta")
    pairs = _pairs(asked, project, engine, models)
    return _Gate(builds, engine, models, moe, pairs, tuple(dict.fromkeys(workloads)), budget, limit)


def _builds(asked: _GateOptions, project: Project, engine: Engine | None) -> tuple[Build, Build]:
    settings, find = project.settings, project.catalogue.find_build
    base = settings.baseline if asked.base is None else asked.base
    candidate = settings.candidate if asked.candidate is None else asked.candidate
    if candidate is None:
        raise ConfigError(
            "CAND is missing: no build to judge",
            why="a gate holds a candidate against a baseline",
            remedy="name both, as in: asperf gate llama-cpp-python==0.3.35 "
            "llama-cpp-python==0.3.36; or set `candidate` in [tool.asperf]",
        )
    return (
        find(base, where="BASE", engine=engine),
        find(candidate, where="CAND", engine=engine),
    )


def _models(
    asked: _GateOptions, project: Project, engine: Engine
) -> tuple[tuple[ModelRef, ...], ModelRef | None]:
    """Return the models that are gated, and a mixture of experts beside the shipped one."""
    from pytest_asperf.config.settings import Settings
    from pytest_asperf.gate.plan import shipped_models_of

    find = project.catalogue.find
    default = project.settings.default_model
    own = asked.models or ((default,) if default != Settings().default_model else ())
    if own:
        return tuple(find(model, where="--model", engine=engine) for model in own), None
    dense, moe = shipped_models_of(engine, project.catalogue, where="asperf gate")
    return (dense,), moe


def _pairs(
    asked: _GateOptions, project: Project, engine: Engine, models: tuple[ModelRef, ...]
) -> tuple[Pairing, ...]:
    """Return whose speculation is gated: the models', with a draft that is named, else shipped."""
    from pytest_asperf.config.spec import NGRAM_DRAFT, Pairing
    from pytest_asperf.gate.plan import shipped_pairs

    if asked.draft is None:
        return shipped_pairs(engine, project.catalogue, where="asperf gate")
    draft = None
    if asked.draft != NGRAM_DRAFT:
        draft = project.catalogue.find(asked.draft, where="--draft", engine=engine)
    return tuple(Pairing(ref, draft) for ref in models)


def _require_writable(path: Path | None) -> None:
    """Refuse a file whose folder is not there, before anything is measured."""
    if path is not None and (not path.parent.is_dir() or path.is_dir()):
        raise ConfigError(
            f"{path} cannot be written: it is no file in a folder that is there",
            why="it would be missed only when everything is measured",
            remedy="name a file in a folder that exists",
        )


def _context(runner: MeasurementRunner, ref: ModelRef) -> int | None:
    """Return the tokens that a model was trained on, None where that is not known."""
    from pytest_asperf.modelfiles.gguf_read import GgufInfo
    from pytest_asperf.modelfiles.mlx_read import MlxInfo

    try:
        info = runner.locate(ref).info
    except EngineError:  # the baseline's engine may make the model, where this one is missing
        return _SHORTEST_CONTEXT
    if isinstance(info, GgufInfo):
        return info.n_ctx_train
    return info.sizes.n_ctx_train if isinstance(info, MlxInfo) and info.sizes else None


@contextmanager
def _paused(status: Status) -> Iterator[None]:
    """Take the status line away while something is printed to the same terminal."""
    status.stop()
    yield
    status.start()


def _run(gate: _Gate, plan: GatePlan, runner: MeasurementRunner, status: Status) -> GateOutcome:
    """Decide the cells, and print each when it is decided."""
    from pytest_asperf.gate.summary import GateOutcome, result_line

    out = Console(highlight=False)
    began = time.monotonic()
    results: list[CellResult] = []
    interrupted = False
    try:
        for cell in plan.cells:
            results.append(_decide(gate, plan, cell, runner))
            with _paused(status):
                _print_whole(out, result_line(results[-1], plan))
    except KeyboardInterrupt:
        interrupted = True
    base, candidate = (build.name for build in gate.builds)
    elapsed_s = time.monotonic() - began
    limits = _limits(gate)
    return GateOutcome((base, candidate), plan, limits, tuple(results), elapsed_s, interrupted)


def _decide(gate: _Gate, plan: GatePlan, cell: GateCell, runner: MeasurementRunner) -> CellResult:
    """Decide one cell; what an engine or a build cannot do is a result too.

    Raises:
        BuildError: a build cannot be made, and no cell can be decided.
    """
    from pytest_asperf.gate.cells import judge_cell, shared_by
    from pytest_asperf.gate.summary import CellResult

    began = time.monotonic()
    try:
        verdict = judge_cell(
            runner,
            cell,
            gate.builds,
            budget=gate.budget,
            max_ppl_delta=gate.max_ppl_delta,
            comparisons=shared_by(plan.cells),
        )
    except BuildError:
        raise
    except AsperfError as error:
        error.reword(in_own_words)
        return CellResult(cell, time.monotonic() - began, error=error)
    return CellResult(cell, time.monotonic() - began, verdict.reworded(in_own_words))


def _limits(gate: _Gate) -> str:
    return (
        f"Accepted: {100 * gate.budget.tolerance:g} % slower, ΔPPL below "
        f"{100 * gate.max_ppl_delta:g} %."
    )


def _print_plan(gate: _Gate, plan: GatePlan, out: Console, *, only_list: bool) -> None:
    from pytest_asperf.gate.cells import shared_by
    from pytest_asperf.gate.summary import error_budget

    base, candidate = (printable(build.name) for build in gate.builds)
    n_cells = f"{len(plan.cells)} cell{'s' * (len(plan.cells) > 1)}"
    print_text(out, f"gate: {candidate} against {base}, {gate.engine}, {n_cells}")
    print_text(out, f"{_limits(gate)} {error_budget(shared_by(plan.cells))}.")
    for one in plan.left_out:
        print_text(out, f"left out: {one.what}: {one.reason}")
    print_text(
        out,
        f"at most {gate.budget.max_pairs} pairs and {gate.budget.max_seconds:g} s a "
        f"cell, --seed={gate.budget.seed}",
    )
    print_text(out, "")
    for cell in plan.cells if only_list else ():
        _print_whole(out, f"{cell.workload:12} {printable(cell.what)}")


def _print_outcome(outcome: GateOutcome) -> None:
    from pytest_asperf.gate.summary import notes, proof_rows

    out = Console(highlight=False)
    for note in notes(outcome.results):
        _print_whole(out, "")
        for line in note.splitlines():
            _print_whole(out, line)
    rows = proof_rows(outcome.results)
    if rows:
        _print_whole(out, "\nwhat ran")
    for row in rows:
        if not row.differs:
            _print_whole(out, f"  {row.label + ':':10} {printable(row.baseline)}, in both")
            continue
        _print_whole(out, f"  {row.label + ':':10} {printable(row.baseline)}")
        _print_whole(out, f"  {'differs':>9}: {printable(row.candidate)}")
    _print_whole(out, f"\n{outcome.headline}")


def _print_whole(out: Console, line: str) -> None:
    """Print a line that a terminal may wrap where it likes, and a file keeps whole."""
    out.print(Text(line), soft_wrap=True)


def _write(outcome: GateOutcome, summary: Path | None, json_file: Path | None) -> None:
    """Write what was asked for, and what GitHub shows of a job."""
    from pytest_asperf.gate.summary import document, markdown

    text = markdown(outcome)
    step = os.environ.get(_STEP_SUMMARY)
    if summary is not None:
        _put(summary, text)
    if step:
        _put(Path(step), text, mode="a")
    if json_file is not None:
        _put(json_file, json.dumps(document(outcome), indent=2, default=str) + "\n")


def _put(path: Path, text: str, *, mode: str = "w") -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        message = f"{path} could not be written: {error.strerror}; the verdicts above stand"
        print_text(stderr_console(), printable(message))
