"""From pytest's options and markers to frozen settings and marks."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pytest

from pytest_asperf.config import markers
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.engines import FOLDER_ENGINES
from pytest_asperf.config.markers import Marks
from pytest_asperf.config.settings import OPTIONS, Settings, parse_typed, session_option
from pytest_asperf.errors import Advice, AsperfError, ConfigError, suggest
from pytest_asperf.plugin.registration import MARKERS

T = TypeVar("T")

#: Similarity of a marker to one of asperf's, from 0 to 1, that counts as a slip; `modle` has 0.8.
_MISSPELT: Final = 0.75


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an unusable option or configuration file into pytest's own usage error."""
    try:
        yield
    except AsperfError as error:
        raise pytest.UsageError(str(error)) from error


def parse_settings(config: pytest.Config, catalogue: Catalogue) -> Settings:
    """A session's settings: defaults, the configuration file's over them, then the options."""
    given = {key: config.getoption(f"asperf_{key}") for key in OPTIONS.values()}
    folder = config.invocation_params.dir
    values = parse_typed(given, where=session_option, folder=folder)
    settings = catalogue.settings.updated(values)
    chosen = replace(catalogue, settings=settings)
    chosen.check_named(values, where=session_option, engine=None)
    if "engine" in values:
        chosen.find(settings.default_model, where=session_option("engine"))
    if "url" in values and settings.engine != "openai":
        raise ConfigError(
            f"{session_option('url')} names a server, and the engine is {settings.engine}",
            why="no selected engine would use it",
            remedy=Advice(
                "name the engine too; if single models name it, write `url` in the configuration "
                "file",
                engine="openai",
            ),
        )
    if "tools" in values and settings.engine not in FOLDER_ENGINES:
        raise ConfigError(
            f"{session_option('tools')} names a folder, and the engine is {settings.engine}",
            why="its binaries would not be run",
            remedy=Advice(
                "name llama_tools, llama_server or command too; if single models name that engine, "
                "write `tools` in the configuration file",
                "engine",
            ),
        )
    return settings


@dataclass(frozen=True, slots=True)
class _ParsedMarks:
    """The parsed values of a test's markers, and the markers that they come from."""

    markers: tuple[pytest.Mark, ...]
    marks: Marks | ConfigError


_PARSED = pytest.StashKey[_ParsedMarks]()


def marks_of(item: pytest.Item) -> Marks:
    """The requests of a test's markers, parsed once; again only if a marker was added since."""
    present = tuple(item.iter_markers())
    parsed = item.stash.get(_PARSED, None)
    if parsed is None or parsed.markers != present:
        try:
            parsed = _ParsedMarks(present, read_marks(item))
        except ConfigError as error:
            parsed = _ParsedMarks(present, error)
        item.stash[_PARSED] = parsed
    if isinstance(parsed.marks, ConfigError):
        raise parsed.marks.with_traceback(None)
    return parsed.marks


def read_marks(node: pytest.Item) -> Marks:
    """The requests of a test's markers, each kind from the closest marker.

    The closer one of `quant` and `quant_ladder` counts; they cannot be at one place.
    """
    _require_known(node)
    levels = _closest_levels(node)
    closest = node.get_closest_marker
    return Marks(
        model=_parsed(node, closest("model"), markers.parse_model),
        quant=_parsed(node, levels.get("quant"), markers.parse_quant),
        ladder=_parsed(node, levels.get("quant_ladder"), markers.parse_ladder),
        kv_ladder=_parsed(node, closest("kv_ladder"), markers.parse_kv_ladder),
        hardware=_parsed(node, closest("hardware"), markers.parse_hardware),
        speculative=_parsed(node, closest("speculative"), markers.parse_speculative),
    )


def _require_known(node: pytest.Item) -> None:
    """Reject an unregistered marker that is spelt nearly as one of asperf's."""
    registered = {re.split(r"[(:]", line)[0].strip() for line in node.config.getini("markers")}
    ours = [line.partition("(")[0] for line in MARKERS]
    for mark in node.iter_markers():
        near = "" if mark.name in registered else suggest(mark.name, ours, likeness=_MISSPELT)
        if near:
            raise ConfigError(
                f"{node.nodeid}: no marker is named {mark.name!r}{near}",
                why="the test would not measure the model that it names",
                remedy="correct the name, or register yours under pytest's `markers`",
            )


def _closest_levels(node: pytest.Item) -> dict[str, pytest.Mark]:
    """The closest of the two markers that name quantizations, by its name."""
    closest: dict[str, pytest.Mark] = {}
    closest_holder = None
    for holder, mark in node.iter_markers_with_node():
        if mark.name in {"quant", "quant_ladder"} and closest_holder in {None, holder}:
            closest_holder = holder
            closest.setdefault(mark.name, mark)
    if len(closest) > 1:
        raise ConfigError(
            f"{node.nodeid}: both a quant and a quant_ladder marker",
            why="a test measures the quantizations of one marker",
            remedy="keep one of them",
        )
    return closest


def _parsed(node: pytest.Item, mark: pytest.Mark | None, parse: Callable[..., T]) -> T | None:
    if mark is None:
        return None
    return parse(mark.args, mark.kwargs, where=f"{node.nodeid}: @pytest.mark.{mark.name}")
