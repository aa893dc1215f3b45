"""Which models there are and what is cached of each: pure functions of catalogue and cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import printable
from pytest_asperf.report.sections import CheckLine, Section, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_asperf.config.spec import ModelSpec
    from pytest_asperf.modelfiles.cache import CacheEntry

_REMOVE: Final = "run `asperf models verify --remove`: it is made again when it is next asked for"


def model_sections(
    models: Sequence[ModelSpec], shipped: Collection[ModelSpec], entries: Sequence[CacheEntry]
) -> tuple[Section, ...]:
    """Return one section for each model, and one for cached files of no model among them.

    Args:
        models: the catalogue's.
        shipped: those of them that come with the package.
        entries: the cache's files.
    """
    sections = []
    for spec in models:
        cached = (
            _check(entry, _level(entry))
            for entry in entries
            if entry.recipe.get("model") == spec.name
        )
        sections.append(Section(spec.name, (*_sources(spec, is_shipped=spec in shipped), *cached)))
    names = {spec.name for spec in models}
    others = tuple(
        entry_check(entry) for entry in entries if entry.recipe.get("model") not in names
    )
    return (*sections, Section("other files in the cache", others)) if others else tuple(sections)


def cached_checks(entries: Iterable[CacheEntry]) -> tuple[CheckLine, ...]:
    """Return one check for each model's intact files together, and one for each broken file."""
    intact: dict[str, list[str]] = {}
    broken = []
    for entry in entries:
        if entry.problem is None:
            levels = intact.setdefault(_model(entry), [])
            levels.append(f"{_level(entry)} {size(entry.nbytes)}")
        else:
            broken.append(entry_check(entry))
    return (*(CheckLine(name, "ok", ", ".join(levels)) for name, levels in intact.items()), *broken)


def entry_check(entry: CacheEntry) -> CheckLine:
    """Return how one cached file is, under its model's address."""
    return _check(entry, f"{_model(entry)}:{_level(entry)}")


def _check(entry: CacheEntry, name: str) -> CheckLine:
    if entry.problem is None:
        return CheckLine(name, "ok", size(entry.nbytes))
    return CheckLine(name, "warning", f"broken, {entry.problem}: {printable(entry.path)}", _REMOVE)


def _model(entry: CacheEntry) -> str:
    return printable(entry.recipe.get("model", "unknown"))


def _level(entry: CacheEntry) -> str:
    return printable(entry.recipe.get("level", "unknown"))


def _sources(spec: ModelSpec, *, is_shipped: bool) -> Iterator[CheckLine]:
    if spec.hf_folder is not None:
        yield _source(spec.hf_folder, "shipped" if is_shipped else "hf")
    if spec.gguf is not None:
        yield _source(spec.gguf, "gguf")
    for level, path in spec.files:
        yield _source(path, f"files.{level}")


def _source(path: Path, name: str) -> CheckLine:
    if path.exists():
        return CheckLine(name, "ok", printable(path))
    remedy = "reinstall pytest-asperf" if name == "shipped" else "correct the path in [tool.asperf]"
    return CheckLine(name, "warning", f"does not exist: {printable(path)}", remedy)
