"""From markers to test items: rungs of a ladder, skips, and refusals that hit one test alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_asperf.config import read_marks
from pytest_asperf.errors import ConfigError
from pytest_asperf.stash import run_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def parametrize_ladder(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each level of its ladder, unless it takes the ladder as a whole.

    A marker that cannot be read leaves the test as it is: its own set-up will refuse it, where an
    error raised here would stop the whole session.
    """
    if "quant" not in metafunc.fixturenames:
        return
    try:
        ladder = read_marks(metafunc.definition).ladder
    except ConfigError:
        return
    if ladder is not None:
        metafunc.parametrize("quant", ladder.levels, indirect=True, ids=ladder.levels)


def check_item(item: pytest.Item) -> None:
    """Refuse bad markers; skip a test that is meant for other hardware.

    Raises:
        ConfigError: a marker's arguments are not usable, or the marker has no effect here.
    """
    marks = read_marks(item)
    names = set(_fixture_names(item))
    if marks.ladder is not None and not names & {"quant", "ladder"}:
        raise ConfigError(
            f"{item.nodeid}: a quant_ladder marker on a test that uses none of its fixtures",
            why="the test would run once and measure none of the levels",
            remedy="take the perplexity, throughput, model, quant or ladder fixture",
        )
    if marks.speculative is not None and "speculation" not in names:
        raise ConfigError(
            f"{item.nodeid}: a speculative marker on a test that does not take its fixture",
            why="the test would measure no speculation",
            remedy="take the speculation fixture",
        )
    if marks.hardware is not None:
        reason = run_of(item.config).unmet(marks.hardware)
        if reason:
            raise pytest.skip.Exception(reason, _use_item_location=True)


def _fixture_names(item: pytest.Item) -> Iterator[str]:
    yield from getattr(item, "fixturenames", ())
