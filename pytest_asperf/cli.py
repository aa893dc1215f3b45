"""The command `asperf`: parses words, asks the other rooms, and prints what they found.

What only some commands need is imported there: numpy and scipy would make every `asperf --help`
wait.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003  # Typer reads the annotations
from typing import Annotated, Final

import typer
from rich.text import Text

from pytest_asperf import __version__
from pytest_asperf.commands.bisect import bisect_builds
from pytest_asperf.commands.builds import builds_app
from pytest_asperf.commands.command_words import Command, in_own_words
from pytest_asperf.commands.console import (
    print_error,
    print_sections,
    print_table,
    print_text,
    stderr_console,
)
from pytest_asperf.commands.gate import gate_builds
from pytest_asperf.commands.models import entry_check, model_sections
from pytest_asperf.commands.options import GateCommand, Wait
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import AsperfError, printable
from pytest_asperf.modelfiles.cache import discard, entries
from pytest_asperf.modelfiles.shipped import shipped_models
from pytest_asperf.report.sections import CheckLine, Section, size

_CANNOT_MEASURE: Final = 1
_ERROR: Final = 2
_INTERRUPTED: Final = 130
# Plain help and usage errors: boxes break at 60 columns and when piped, and markup in what a user
# typed would be interpreted.
app = typer.Typer(
    help="Performance tests for local LLM inference: is this machine ready, what is cached?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(
    help="List, build and verify the models in the cache.", rich_markup_mode=None
)
app.add_typer(models_app, name="models")
app.command("bisect", cls=GateCommand)(bisect_builds)
app.add_typer(builds_app, name="builds")
app.command("gate", cls=GateCommand)(gate_builds)

_Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Interpreter that has the engine; default: the configured one, else this one.",
    ),
]


def main() -> None:
    """Run the command; the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A device's or a file's name may hold letters that the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="asperf")
    except AsperfError as error:
        print_error(error)
        sys.exit(_ERROR)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _print_version(value: bool) -> None:  # noqa: FBT001  # Typer calls it with the flag
    if value:
        typer.echo(f"asperf {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command(cls=Command)
def doctor(
    *,
    python: _Python = None,
    measure_bandwidth: Annotated[
        bool,
        typer.Option("--measure-bandwidth", help="Measure the memory bandwidth now (2 to 8 s)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """List what is detected, and what would disturb a measurement.

    Exits with 0 if a measurement could run, with 1 if something makes it impossible.
    """
    from pytest_asperf.commands.doctor import examine
    from pytest_asperf.config.engines import EXTRAS

    project = open_project(python=python)
    builds = [project.engine_build(engine) for engine in EXTRAS]
    if project.settings.tools is not None:
        builds.append(project.engine_build("llama_tools"))
    console = stderr_console()
    with console.status("examining this machine"):
        found = examine(
            builds,
            project.cache,
            measure_bandwidth=measure_bandwidth,
            queue=project.queue(lambda message: print_text(console, message)),
        )
    if as_json:
        typer.echo(in_own_words(json.dumps(found.as_dict(), default=str, indent=2)))
    else:
        print_sections(found.sections, last_line=found.headline)
    if not found.is_ready:
        raise typer.Exit(_CANNOT_MEASURE)


@app.command("calibrate", cls=Command)
def calibrate_machine(
    *,
    python: _Python = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=5, metavar="N", help="Pairs to run, all of them.")
    ] = 20,
    model: Annotated[
        str, typer.Option("--model", metavar="ADDRESS", help="Model to run.")
    ] = "asperf-target",
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", metavar="NAME", help="What to time; repeatable [tg128]."),
    ] = None,
    wait: Wait = None,
) -> None:
    """Measure this machine's noise with a build against itself, and keep it for gates.

    Exits with 1, and keeps nothing, if other work makes the machine too busy for it.
    """
    from pytest_asperf.commands.calibrate import calibrate
    from pytest_asperf.config.workload import parse_workload

    project = open_project(python=python, wait=wait)
    ref = project.catalogue.find(model, where="--model")
    engine = ref.spec.engine or project.settings.engine
    build = project.catalogue.find_build("current", where="asperf calibrate", engine=engine)
    names = dict.fromkeys(workload or ["tg128"])
    workloads = tuple(parse_workload(name, where="--workload") for name in names)
    console = stderr_console()
    with console.status("calibrating") as status, project.runner(engine, console, status) as runner:
        found = calibrate(
            runner,
            build,
            ref,
            workloads,
            pairs=pairs,
            tolerance=project.settings.tolerance,
            seed=project.draw_seed(),
        )
    print_sections(found.sections)
    if not found.is_kept:
        raise typer.Exit(_CANNOT_MEASURE)


@app.command("predict", cls=Command)
def predict_models(
    *,
    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A .gguf file, a Hugging Face folder or NAME[:LEVEL]; repeatable.",
        ),
    ],
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME", help="A profile, or auto for this machine."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option("--memory", min=1, metavar="GB", help="Memory of the named hardware."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="Level of models named without one."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", min=1, max=2**31 - 1, metavar="N", help="Positions [4096]."),
    ] = None,
    type_k: Annotated[str | None, typer.Option("--type-k", help="K cache's type [f16].")] = None,
    type_v: Annotated[str | None, typer.Option("--type-v", help="V cache's type [f16].")] = None,
    draft: Annotated[
        str | None, typer.Option("--draft", metavar="MODEL", help="Draft model to speculate with.")
    ] = None,
    draft_ratio: Annotated[
        float | None,
        typer.Option("--draft-ratio", min=0.01, max=1e6, help="Measured draft TG / target TG."),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option("--verify", metavar="N:COST,...", help="Measured C(N), such as 2:1.6,5:2.1."),
    ] = None,
    acceptance: Annotated[
        float | None, typer.Option("--acceptance", min=0, max=1, help="Acceptance rate.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Estimate from sizes: do models fit a machine, how fast can they be, would a draft pay?

    Exits with 0 if all fit in memory, with 1 if one does not.
    """
    from pytest_asperf.config.engine_settings import EngineSettings, parse_settings
    from pytest_asperf.forecast.predict import ForecastRequest, predict
    from pytest_asperf.forecast.text import as_json as prediction_json
    from pytest_asperf.forecast.text import rows, sections

    project = open_project()
    kv = EngineSettings()
    for option, key, value in (("--type-k", "type_k", type_k), ("--type-v", "type_v", type_v)):
        kv = kv if value is None else kv.merged(parse_settings({key: value}, where=option))
    question = ForecastRequest(
        hardware=hardware or project.settings.hardware,
        memory_gb=memory,
        level=level,
        context=context,
        kv=kv,
        draft=draft,
        draft_ratio=draft_ratio,
        verify=verify,
        acceptance=acceptance,
    )
    console = stderr_console()
    with console.status("reading"):
        found = predict(
            models,
            question,
            project.catalogue,
            project.cache,
            project.queue(lambda message: print_text(console, message)),
        )
    if as_json:
        typer.echo(in_own_words(json.dumps(prediction_json(found), default=str, indent=2)))
    else:
        if len(models) > 1:
            print_table(rows(found))
        print_sections(sections(found))
    if not found.fits:
        raise typer.Exit(_CANNOT_MEASURE)


@app.command("audit", cls=Command)
def audit_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE")],
    *,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME", help="Profile of the machine measured on."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="GGUF", help="A model's file, for bytes per token."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Output that others are paired with."),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option("--repetitions", min=1, help="Of llama-bench, where its output lacks them."),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Two-sided, of every interval.")
    ] = 0.90,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read the output of other tools: what it shows with intervals, and whether it is valid.

    Exits with 0 if every file was read and is sound, with 1 if something is INVALID or
    INCONCLUSIVE, else with 2 if a file could not be read.
    """
    from pytest_asperf.audit.known import parse_options
    from pytest_asperf.audit.page import sections
    from pytest_asperf.audit.together import audit

    options = parse_options(hardware, model or (), baseline, repetitions, confidence)
    console = stderr_console()
    with console.status("reading") as status:
        found = audit(files, options, on_file=lambda path: status.update(Text(printable(path))))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), allow_nan=False, indent=2))
    else:
        print_sections(sections(found), last_line=found.headline)
    raise typer.Exit(found.exit_code)


@app.command("findings", cls=Command)
def list_findings(
    *,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of them as a page in Markdown.")
    ] = False,
) -> None:
    """List the published findings, with the verdict of the recorded figures on each."""
    from pytest_asperf.commands.findings import listing

    typer.echo(listing(open_project().settings, as_markdown=as_markdown))


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models."""
    if context.invoked_subcommand is None:
        list_models()


@models_app.command("list", cls=Command)
def list_models() -> None:
    """List the models, their sources and the levels cached."""
    project = open_project()
    print_sections(
        model_sections(project.catalogue.models, shipped_models(), entries(project.cache))
    )


@models_app.command("build", cls=Command)
def build_models(
    addresses: Annotated[list[str], typer.Argument(metavar="NAME[:LEVEL]")],
    python: _Python = None,
) -> None:
    """Make the files of models at levels, where they are not made yet."""
    from pytest_asperf.measure.model_locator import ModelLocator

    project = open_project(python=python)
    where = "asperf models build"
    # All are looked up before the first is made: a typo shows at once.
    refs = [project.catalogue.find(address, where=where) for address in addresses]
    settings = project.settings
    shelves = {
        engine: ModelLocator(
            project.engine_build(engine),
            cache=project.cache,
            call_timeout_s=settings.call_timeout_s,
        )
        for engine in {ref.spec.engine or settings.engine for ref in refs}
    }
    for ref in refs:
        locator = shelves[ref.spec.engine or settings.engine]
        with stderr_console().status(Text(f"making {printable(ref.label)}")):
            located = locator.locate(ref)
        check = CheckLine("file", "ok", f"{size(located.size_bytes)}, {printable(located.path)}")
        print_sections([Section(ref.label, (check,))])


@models_app.command("verify", cls=Command)
def verify_models(
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove broken files; they are made again when used.")
    ] = False,
) -> None:
    """Compare every cached file with the SHA-256 it was written with.

    Exits with 1 where one is broken and left in place.
    """
    cache = open_project().cache
    with stderr_console().status("reading the cache"):
        found = entries(cache, full=True)
    checks = [CheckLine("folder", "ok", printable(cache)), *map(entry_check, found)]
    broken = [entry.path for entry in found if entry.problem is not None]
    print_sections(
        [Section("cache", tuple(checks))], last_line=f"{len(found)} files, {len(broken)} broken"
    )
    if broken and not remove:
        raise typer.Exit(_CANNOT_MEASURE)
    for path in broken:
        discard(path)
        typer.echo(f"removed {printable(path)}")


if __name__ == "__main__":
    main()
