"""`asperf builds`: lists, makes and removes the builds of engines in the cache."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.commands.command_words import Command
from pytest_asperf.commands.console import (
    CommandNotify,
    print_json,
    print_sections,
    print_text,
    stderr_console,
)
from pytest_asperf.commands.options import AsJson, BuildArgument
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import AsperfError, ConfigError, printable
from pytest_asperf.measure import compose
from pytest_asperf.modelfiles.cache import BUILDS_FOLDER
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.builds.store import MadeBuild
    from pytest_asperf.commands.project import Project
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import Build

_DAY_S: Final = 86400
#: By engine: the file of a release without which it does not start.
_FIRST_PROGRAMS: Final[tuple[tuple[Engine, str], ...]] = (
    ("llama_tools", "llama-bench"),
    ("llama_server", "llama-server"),
)
_WHERE: Final = "asperf builds make"

builds_app = typer.Typer(
    help="List, make and prune the builds of engines in the cache.", rich_markup_mode=None
)


@builds_app.callback(invoke_without_command=True)
def builds(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the builds."""
    if context.invoked_subcommand is None:
        list_builds(as_json=as_json)


@builds_app.command("list", cls=Command)
def list_builds(*, as_json: AsJson = False) -> None:
    """List the builds that the project declares, and those that are made."""
    from pytest_asperf.builds.store import made_builds
    from pytest_asperf.config.build_sources import source_text

    project = open_project()
    kept = list(made_builds(project.cache))
    if as_json:
        sources = {build.name: source_text(build.source) for build in project.catalogue.builds}
        print_json(
            {
                "declared": [{"name": name, "source": text} for name, text in sources.items()],
                "made": [asdict(made) for made in kept],
            }
        )
        return
    declared = tuple(_declared_check(build, kept, project) for build in project.catalogue.builds)
    made = tuple(map(_kept_check, kept))
    print_sections(
        [
            *([Section("declared", declared)] if declared else []),
            Section(f"made, in {printable(project.cache / BUILDS_FOLDER)}", made),
        ],
        last_line=f"{len(made)} builds, {memory_text(sum(made.nbytes for made in kept))}",
    )


@builds_app.command("make", cls=Command)
def make_builds(
    builds: Annotated[list[str], BuildArgument(metavar="BUILD")],
    *,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Make them again: a requirement without a version is resolved again."
        ),
    ] = False,
) -> None:
    """Make missing builds, and say which engine each has."""
    from pytest_asperf.builds.build_cache import recipe_of
    from pytest_asperf.builds.store import discard, finished
    from pytest_asperf.config.build_sources import MadeSource

    project = open_project()
    find = project.catalogue.find_build
    # All are looked up before the first is made: a typo shows at once.
    wanted = [find(text, where=_WHERE) for text in builds]
    for build in wanted:
        source = build.source
        if not isinstance(source, MadeSource):
            raise ConfigError(
                f"{_WHERE}: {build.name} exists already",
                why="an interpreter or a folder of programs is used as it is",
                remedy="name a requirement, a wheel, a release, or a checkout at a commit",
            )
        with CommandNotify(stderr_console()) as notify:
            notify.progress(f"making {build.name}", 0, 0)
            build_cache = compose.build_cache(project.settings, notify)
            folder = recipe_of(source, cache=project.cache).folder(project.cache)
            if again and (old := finished(folder)):
                discard(old, notify.wait)
            made = build_cache.made(source)
            checks = (_kept_check(made), *_engine_checks(build, made, build_cache))
        print_sections([Section(printable(build.name), checks)])


@builds_app.command("prune", cls=Command)
def prune_builds(
    *,
    older_than: Annotated[
        int | None,
        typer.Option("--older-than", min=0, metavar="DAYS", help="Last used so many days ago."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    really: Annotated[
        bool, typer.Option("--yes", help="Remove them; without it they are only listed.")
    ] = False,
) -> None:
    """List or remove builds, and what unfinished ones left.

    What is removed is made again when it is next asked for.
    """
    from pytest_asperf.builds.store import discard, made_builds

    project = open_project()
    before = time.time() - (older_than if older_than is not None else 0) * _DAY_S
    chosen = every or older_than is not None

    def goes(made: MadeBuild) -> bool:
        return made.made_at is None or (chosen and made.used_at <= before)

    gone = [made for made in made_builds(project.cache) if goes(made)]
    print_sections([Section("to be removed", tuple(map(_kept_check, gone)))])
    total = f"{len(gone)} builds, {memory_text(sum(made.nbytes for made in gone))}"
    if not really:
        hint = "" if chosen else "; --older-than=DAYS or --all chooses finished ones too"
        typer.echo(f"{total}: nothing is removed without --yes{hint}")
        return

    def wait(reason: str) -> None:
        print_text(stderr_console(), printable(f"waiting: {reason}"))

    # A gate may be running on one of them.
    with project.queue(wait).turn():
        for made in gone:
            discard(made, wait)
    typer.echo(f"removed {total}")


def _declared_check(build: Build, kept: Sequence[MadeBuild], project: Project) -> CheckLine:
    """A declared build, and whether it is made; nothing that the project names is run."""
    from pytest_asperf.builds.build_cache import made_of
    from pytest_asperf.config.build_sources import MadeSource, source_text

    text = printable(source_text(build.source), 200)
    if not isinstance(build.source, MadeSource):
        return CheckLine(build.name, "ok", text)
    try:
        folders = made_of(build.source, kept, cache=project.cache)
    except AsperfError as error:
        return CheckLine(build.name, "warning", printable(error.what), printable(error.remedy))
    made = f"made: {', '.join(map(printable, folders))}" if folders else "not made yet"
    return CheckLine(build.name, "ok", f"{text}; {made}")


def _kept_check(made: MadeBuild) -> CheckLine:
    name = printable(made.title, 120)
    where = printable(made.folder.name)
    if made.made_at is None:
        remedy = "run `asperf builds prune --yes`, or make it, which continues the compilation"
        return CheckLine(name, "warning", f"not finished; {memory_text(made.nbytes)}", remedy)
    ages = f"made {_ago(made.made_at)}, used {_ago(made.used_at)}"
    parts = (*_engines(made.facts, made.found), memory_text(made.nbytes), ages, where)
    return CheckLine(name, "ok", "; ".join(parts))


def _engines(facts: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """What a build is for, with its version and what it was compiled with."""
    from pytest_asperf.config.engines import DISTRIBUTIONS

    if facts.get("kind") == "checkout":
        yield f"llama_tools, llama_server at {printable(facts.get('commit'), 40)}"
    of_engines: dict[str, list[str]] = {}
    for name, version in found.get("packages", {}).items():
        if (engine := DISTRIBUTIONS.get(name.lower().replace("_", "-"))) is not None:
            of_engines.setdefault(engine, []).append(f"{name} {version}")
    for name, versions in of_engines.items():
        yield printable(f"{name}: {', '.join(versions)}", 80)
    if "base" in facts:
        yield f"Python {printable(str(facts['base'].get('version')).partition(' ')[0], 20)}"
    variables = [f"{name}={text}" for name, text in facts.get("compiles_with", {}).items()]
    if options := [*facts.get("cmake", []), *variables]:
        yield printable(" ".join(options), 200)


def _engine_checks(build: Build, made: MadeBuild, build_cache: BuildCache) -> Sequence[CheckLine]:
    """What each engine of a build says of itself when it is started."""
    from pytest_asperf.config.build_sources import Packages, has_programs
    from pytest_asperf.engine_process import Worker

    source, engines = build.source, set()
    if has_programs(source):
        folder = made.folder / str(made.found["folder"])
        engines = {engine for engine, name in _FIRST_PROGRAMS if (folder / name).exists()}
    elif isinstance(source, Packages):
        engines = set(source.engines)
    checks = []
    for engine in sorted(engines):
        with Worker(build_cache.ready(build, engine).engine) as worker:
            checks.append(CheckLine(engine, "ok", worker.describe().release))
    return checks


def _ago(then: float) -> str:
    days = int((time.time() - then) / _DAY_S)
    return "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"
