"""Options and markers to frozen settings: the part of the shell that pytest hands its words to."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_asperf.config import markers as marks
from pytest_asperf.config.options import OPTIONS
from pytest_asperf.config.settings import Settings, parse_values, read_word
from pytest_asperf.errors import AsperfError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_asperf.config.catalogue import Catalogue

T = TypeVar("T")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an unusable option or configuration file into pytest's own usage error."""
    try:
        yield
    except AsperfError as error:
        raise pytest.UsageError(str(error)) from error


def parse_settings(config: pytest.Config, catalogue: Catalogue) -> Settings:
    """Return the settings of a run: defaults, the configuration file, then the options over it.

    Raises:
        ConfigError: an option is not usable; see `usage_errors`.
    """
    options = {key: option for option, (key, _, _) in OPTIONS.items()}
    given = {
        key: read_word(key, value)
        for key in options
        if (value := config.getoption(f"asperf_{key}")) is not None
    }
    folder = config.invocation_params.dir
    values = parse_values(given, where=options.__getitem__, folder=folder)
    settings = replace(catalogue.settings, **values)
    if chosen := [key for key in ("default_model", "engine") if key in values]:
        found = replace(catalogue, settings=settings)
        found.find(settings.default_model, where=options[chosen[0]])
    if "tools" in values and settings.engine != "llama_tools":
        raise ConfigError(
            f"--asperf-tools names a folder, and the engine is {settings.engine}",
            why="its programs would not be run",
            remedy="give --asperf-engine=llama_tools as well; where single models name that engine,"
            " write `tools` in the configuration file",
        )
    return settings


def read_marks(node: pytest.Item) -> marks.Marks:
    """Return what a test's markers ask for, each kind from the closest marker.

    A `quant` marker and a `quant_ladder` marker exclude each other: the closer one wins.

    Raises:
        ConfigError: a marker's arguments are not usable; or both of those stand at one place.
    """
    levels = _closest_levels(node)
    return marks.Marks(
        model=_parsed(node, node.get_closest_marker("model"), marks.parse_model),
        quant=_parsed(node, levels.get("quant"), marks.parse_quant),
        ladder=_parsed(node, levels.get("quant_ladder"), marks.parse_ladder),
        kv_ladder=_parsed(node, node.get_closest_marker("kv_ladder"), marks.parse_kv_ladder),
        hardware=_parsed(node, node.get_closest_marker("hardware"), marks.parse_hardware),
        speculative=_parsed(node, node.get_closest_marker("speculative"), marks.parse_speculative),
    )


def _closest_levels(node: pytest.Item) -> dict[str, pytest.Mark]:
    """Return the closest of the two markers that name levels, by its name."""
    closest: dict[str, pytest.Mark] = {}
    place = None
    for holder, mark in node.iter_markers_with_node():
        if mark.name in {"quant", "quant_ladder"} and (place is None or place is holder):
            place = holder
            closest.setdefault(mark.name, mark)
    if len(closest) > 1:
        raise ConfigError(
            f"{node.nodeid}: both a quant and a quant_ladder marker",
            why="which levels the test is meant to measure is a guess",
            remedy="keep one of them",
        )
    return closest


def _parsed(node: pytest.Item, mark: pytest.Mark | None, parse: Callable[..., T]) -> T | None:
    if mark is None:
        return None
    return parse(mark.args, mark.kwargs, where=f"{node.nodeid}: @pytest.mark.{mark.name}")
