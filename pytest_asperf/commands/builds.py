"""`asperf builds`: lists, makes and removes the builds of engines in the cache."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.commands.console import (
    CommandNotify,
    json_text,
    print_sections,
    print_text,
    stderr_console,
)
from pytest_asperf.commands.options import (
    Group,
    build_argument,
    number_from,
    reports,
    settings,
    written,
)
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import AsperfError, ConfigError, printable
from pytest_asperf.modelfiles.cache import BUILDS_FOLDER
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.builds.store import MadeBuild
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.config.spec import Build
    from pytest_asperf.measure.workspace import Workspace

_DAY_S: Final = 86400
#: By engine: the file of a release without which it does not start.
_FIRST_PROGRAMS: Final[tuple[tuple[Engine, str], ...]] = (
    ("llama_tools", "llama-bench"),
    ("llama_server", "llama-server"),
)
_WHERE: Final = "asperf builds make"


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def builds(context: click.Context) -> None:
    """List, make and prune the builds of engines in the cache."""
    if context.invoked_subcommand is None:
        context.invoke(list_builds, reports=())


@builds.command("list")
@reports("json")
def list_builds(reports: Sequence[ReportTarget]) -> None:
    """List the builds that the project declares, and those that are made."""
    from pytest_asperf.builds.store import made_builds
    from pytest_asperf.config.build_sources import declared_text

    project = open_project()
    kept = list(made_builds(project.cache))
    sources = {build.name: declared_text(build.source) for build in project.catalogue.builds}
    data = {
        "declared": [{"name": name, "source": text} for name, text in sources.items()],
        "made": [asdict(made) for made in kept],
    }
    if written(reports, {"json": lambda: json_text(data)}):
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


@builds.command("make")
@build_argument("wanted", metavar="BUILD...", nargs=-1, required=True)
@click.option(
    "--again",
    is_flag=True,
    help="Make them again: a requirement without a version is resolved again.",
)
@settings()
def make_builds(wanted: tuple[str, ...], again: bool) -> None:  # noqa: FBT001
    """Make missing builds, and list each one's engines."""
    from pytest_asperf.builds.build_cache import recipe_of
    from pytest_asperf.builds.store import discard, finished
    from pytest_asperf.config.build_sources import MadeSource

    project = open_project()
    find = project.catalogue.find_build
    # All are looked up before the first is made: a typo shows at once.
    for build in [find(text, where=_WHERE) for text in wanted]:
        source = build.source
        if not isinstance(source, MadeSource):
            raise ConfigError(
                f"{_WHERE}: {build.name} exists already",
                why="an interpreter or a folder of binaries is used as it is",
                remedy="name a requirement, a wheel, a release, or a checkout at a commit",
            )
        with CommandNotify(stderr_console()) as notify:
            notify.progress(f"making {build.name}", 0, 0)
            build_cache = project.build_cache(notify)
            folder = recipe_of(source, cache=project.cache).folder(project.cache)
            if again and (old := finished(folder)):
                discard(old, notify.wait)
            made = build_cache.made(source)
            checks = (_kept_check(made), *_engine_checks(build, made, build_cache))
        print_sections([Section(printable(build.name), checks)])


@builds.command("prune")
@click.option(
    "--older-than", type=number_from(0), metavar="DAYS", help="Builds not used for that long."
)
@click.option("--all", "every", is_flag=True, help="All builds.")
@click.option("--yes", "really", is_flag=True, help="Remove them; without it they are only listed.")
@settings()
def prune_builds(*, older_than: int | None, every: bool, really: bool) -> None:
    """List or remove builds, and the remains of unfinished ones.

    A removed build is made again when it is needed.
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
        click.echo(f"{total}: nothing is removed without --yes{hint}")
        return

    def wait(reason: str) -> None:
        print_text(stderr_console(), printable(f"waiting: {reason}"))

    # A gate may be running on one of them.
    with project.queue(wait).turn():
        for made in gone:
            discard(made, wait)
    click.echo(f"removed {total}")


def _declared_check(build: Build, kept: Sequence[MadeBuild], project: Workspace) -> CheckLine:
    """A declared build, and whether it is made; nothing that the project names is run."""
    from pytest_asperf.builds.build_cache import made_of
    from pytest_asperf.config.build_sources import MadeSource, declared_text

    text = printable(declared_text(build.source), 400)
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
    """The purpose of a build, with its version and its compilation."""
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
    """The facts that each engine of a build reports when it is started."""
    from pytest_asperf.config.build_sources import Packages, has_programs
    from pytest_asperf.engine_process import Worker

    source, engines = build.source, set()
    if has_programs(source):
        folder = made.folder / str(made.found["folder"])
        engines = {engine for engine, name in _FIRST_PROGRAMS if (folder / name).exists()}
        engines = engines or {"llama_cpp"}  # libraries alone
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
