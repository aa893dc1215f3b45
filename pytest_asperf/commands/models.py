"""`asperf models`: lists the models, makes and verifies their files in the cache."""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.commands import options
from pytest_asperf.commands.console import json_text, print_sections, stderr_console
from pytest_asperf.commands.options import Group, end, reports, settings, written
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.errors import ModelError, printable
from pytest_asperf.modelfiles.cache import CacheEntry, discard, entries
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.report.sections import CheckLine, Section

#: The end of a name that `modelfiles` gives.
_OWN: Final = re.compile(r"-[0-9a-f]{16}\.(gguf|mlx)$")
_REMOVE: Final = "run `asperf models verify --remove`: it is made again when it is next needed"


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List, build and verify the models in the cache."""
    if context.invoked_subcommand is None:
        context.invoke(list_models, reports=())


@models.command("list")
@reports("json")
def list_models(reports: Sequence[ReportTarget]) -> None:
    """List the models, their sources and cached quantizations."""
    project = open_project()
    shipped, cached = shipped_models(), entries(project.cache)
    specs = sorted(project.catalogue.models, key=lambda spec: spec in shipped)
    if not written(reports, {"json": lambda: json_text(_listed(specs, shipped, cached))}):
        print_sections(model_sections(specs, shipped, cached))


def _listed(
    models: Sequence[ModelSpec], shipped: Collection[ModelSpec], entries: Sequence[CacheEntry]
) -> dict[str, Any]:
    """The models and the cached files, as JSON shows them."""
    return {
        "models": [
            {
                "name": spec.name,
                "engine": spec.engine,
                "shipped": spec in shipped,
                "phases": [list(phase.run) for phase in spec.pipeline.phases]
                if spec.pipeline
                else [],
                "sources": [
                    {
                        "kind": kind,
                        "path": path,
                        "exists": path.exists(),
                        "problem": error.what if (error := _unusable(path)) else None,
                    }
                    for path, kind in _paths(spec, is_shipped=spec in shipped)
                ],
            }
            for spec in models
        ],
        "cached": [
            {
                "model": entry.recipe.get("model"),
                "quant": entry.recipe.get("level"),
                "path": entry.path,
                "bytes": entry.nbytes,
                "problem": entry.problem,
            }
            for entry in entries
        ],
    }


@models.command("build")
@click.argument(
    "addresses", metavar="NAME[:QUANT]...", nargs=-1, required=True, shell_complete=options.models
)
@settings()
def build_models(addresses: tuple[str, ...]) -> None:
    """Make the files of quantizations that are not made yet."""
    from pytest_asperf.modelfiles.locate import ModelLocator  # numpy, scipy

    project = open_project()
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
        found = f"{memory_text(located.size_bytes)}, {printable(located.path)}"
        check = CheckLine("file", "ok", found)
        print_sections([Section(ref.label, (check,))])


@models.command("verify")
@click.option("--remove", is_flag=True, help="Remove broken files; they are made again when used.")
def verify_models(remove: bool) -> None:  # noqa: FBT001  # click calls it by name
    """Compare every cached file with the SHA-256 it was written with.

    Exits with 1 if a broken one is left in place.
    """
    cache = open_project().cache
    with stderr_console().status("reading the cache"):
        cached = entries(cache, full=True)
    checks = [CheckLine("folder", "ok", printable(cache)), *map(entry_check, cached)]
    broken = [entry.path for entry in cached if entry.problem is not None]
    print_sections(
        [Section("cache", tuple(checks))], last_line=f"{len(cached)} files, {len(broken)} broken"
    )
    if broken and not remove:
        end(ExitCode.FAIL)
    for path in broken:
        if not _OWN.search(path.name):  # the cache may be a folder of other files
            click.echo(f"not removed, because asperf did not make it: {printable(path)}")
            continue
        discard(path)
        click.echo(f"removed {printable(path)}")


def model_sections(
    models: Sequence[ModelSpec], shipped: Collection[ModelSpec], entries: Sequence[CacheEntry]
) -> tuple[Section, ...]:
    """One section for each model, and one for cached files of no model among them."""
    sections = []
    for spec in models:
        cached = (
            _check(entry, _level(entry))
            for entry in entries
            if entry.recipe.get("model") == spec.name
        )
        sources = (
            *(_source(*item) for item in _paths(spec, is_shipped=spec in shipped)),
            *(CheckLine("phases", "ok", f"runs {command}") for command in commands_of(spec)),
        )
        # Files of one quantization by several builds are equally large.
        sections.append(Section(spec.name, tuple(dict.fromkeys((*sources, *cached)))))
    names = {spec.name for spec in models}
    others = tuple(
        entry_check(entry) for entry in entries if entry.recipe.get("model") not in names
    )
    return (*sections, Section("other files in the cache", others)) if others else tuple(sections)


def commands_of(spec: ModelSpec) -> tuple[str, ...]:
    """The command lines of a model's external programs, if it has any."""
    phases = spec.pipeline.phases if spec.pipeline else ()
    return tuple(printable(shlex.join(phase.run), 400) for phase in phases)


def cached_checks(entries: Iterable[CacheEntry]) -> tuple[CheckLine, ...]:
    """One check for each model's intact files together, and one for each broken file."""
    intact: dict[str, list[str]] = {}
    broken = []
    for entry in entries:
        if entry.problem is None:
            levels = intact.setdefault(_model(entry), [])
            levels.append(f"{_level(entry)} {memory_text(entry.nbytes)}")
        else:
            broken.append(entry_check(entry))
    return (*(CheckLine(name, "ok", ", ".join(levels)) for name, levels in intact.items()), *broken)


def entry_check(entry: CacheEntry) -> CheckLine:
    """The state of a cached file, under its model's spec."""
    return _check(entry, f"{_model(entry)}:{_level(entry)}")


def _check(entry: CacheEntry, name: str) -> CheckLine:
    if entry.problem is None:
        return CheckLine(name, "ok", memory_text(entry.nbytes))
    return CheckLine(name, "warning", f"broken, {entry.problem}: {printable(entry.path)}", _REMOVE)


def _model(entry: CacheEntry) -> str:
    return printable(entry.recipe.get("model", "unknown"))


def _level(entry: CacheEntry) -> str:
    return printable(entry.recipe.get("level", "unknown"))


def _paths(spec: ModelSpec, *, is_shipped: bool) -> Iterator[tuple[Path, str]]:
    """The source of a model, and the key under which it is declared."""
    if spec.hf_folder is not None:
        yield spec.hf_folder, "shipped" if is_shipped else "hf"
    if spec.gguf is not None:
        yield spec.gguf, "gguf"
    for level, path in spec.files:
        yield path, f"files.{level}"


def _source(path: Path, name: str) -> CheckLine:
    if error := _unusable(path):
        return CheckLine(name, "warning", printable(error.what), printable(error.remedy))
    if path.exists():
        return CheckLine(name, "ok", printable(path))
    remedy = "reinstall pytest-asperf" if name == "shipped" else "correct the path in [tool.asperf]"
    return CheckLine(name, "warning", f"does not exist: {printable(path)}", remedy)


def _unusable(path: Path) -> ModelError | None:
    """The reason why a source cannot be measured, as far as its header shows."""
    from pytest_asperf.modelfiles.gguf_read import inspect_gguf  # numpy
    from pytest_asperf.modelfiles.mlx_read import read_configuration  # numpy

    try:
        if path.suffix == ".gguf" and path.exists():
            inspect_gguf(path)
        elif (path / "config.json").exists():
            read_configuration(path)
    except ModelError as error:
        return error
    return None
