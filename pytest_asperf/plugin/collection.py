"""From markers to test items: rungs of a ladder, skips, and refusals that hit one test alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.errors import ConfigError
from pytest_asperf.plugin.parsing import marks_of, read_marks
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import session_of

if TYPE_CHECKING:
    import pytest


def parametrize_ladder(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each rung of its ladder, unless it takes the ladder as a whole.

    A marker that cannot be read leaves the test as it is: its own set-up will refuse it, where an
    error raised here would stop the whole session.
    """
    if not {"quant", "kv_type"} & set(metafunc.fixturenames):
        return
    try:
        marks = read_marks(metafunc.definition)
    except ConfigError:
        return
    if marks.ladder is not None and "quant" in metafunc.fixturenames:
        levels = marks.ladder.levels
        metafunc.parametrize("quant", levels, indirect=True, ids=levels)
    if marks.kv_ladder is not None and "kv_type" in metafunc.fixturenames:
        types = tuple(marks.kv_ladder.types)
        metafunc.parametrize("kv_type", types, indirect=True, ids=types)


def check_item(item: pytest.Item) -> None:
    """Refuse bad markers, and markers without effect; skip a test meant for other hardware."""
    marks = marks_of(item)
    names = set(getattr(item, "fixturenames", ()))
    if marks.ladder is not None and marks.kv_ladder is not None:
        raise ConfigError(
            f"{item.nodeid}: both a quant_ladder and a kv_ladder marker",
            why="if weights and cache both change, no difference is due to one of them",
            remedy="keep one; a quant marker beside kv_ladder names the weights",
        )
    for name, mark, fixture in (
        ("quant_ladder", marks.ladder, "quant"),
        ("kv_ladder", marks.kv_ladder, "kv_type"),
    ):
        if mark is not None and not names & {fixture, "ladder"}:
            raise ConfigError(
                f"{item.nodeid}: a {name} marker on a test that uses none of its fixtures",
                why="the test would run once and measure none of the rungs",
                remedy=f"take the perplexity, throughput, model, {fixture} or ladder fixture",
            )
    if marks.speculative is not None and not {"speculation", "gate"} & names:
        raise ConfigError(
            f"{item.nodeid}: a speculative marker on a test that does not take its fixture",
            why="the test would measure no speculation",
            remedy='take the speculation fixture, or gate for gate("sd")',
        )
    if marks.hardware is not None and (reason := session_of(item.config).unmet(marks.hardware)):
        skip("test", reason)
