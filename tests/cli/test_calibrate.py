"""`asperf calibrate`, with the scripted engine and a lock of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.detect import detect
from pytest_asperf.measure.noise import NoiseBook

if TYPE_CHECKING:
    from tests.cli.conftest import Command, ScriptedCommand


@pytest.fixture
def calibrate(scripted_command: ScriptedCommand) -> Command:
    """The command, in a project with a model of which nothing is known yet."""
    return scripted_command("calibrate", "--model", "fake:F16")


@pytest.fixture
def book(calibrate: Command) -> NoiseBook:
    """What is known of this machine's noise."""
    return NoiseBook(calibrate.folder / "cache", detect())


def test_a_fixed_number_of_pairs_is_run_and_kept(calibrate: Command, book: NoiseBook) -> None:
    """All pairs are run, however early equal builds could be told, and a table is printed."""
    done = calibrate("--pairs", "7", "--workload", "tg32", "--workload", "pp64")
    assert done.exit_code == 0, done.output
    kept = {c.workload: c for c in book.calibrations}
    assert {name: c.pairs for name, c in kept.items()} == {"tg32": 7, "pp64": 7}
    assert kept["tg32"].model == "fake:F16"
    assert kept["tg32"].engine.startswith("scripted 1")
    # Every load replays the same costs: equal builds, and equal loads.
    assert kept["tg32"].spread == 0
    assert kept["tg32"].load_sd == 0
    for told in ("tg32 fake:F16", "pp64 fake:F16", "spread", "position", "loads", "detectable"):
        assert told in done.output
    assert "in 20 pairs, 0 % in 60 pairs" in done.output


def test_a_single_run_in_a_load_says_nothing_of_loads(calibrate: Command, book: NoiseBook) -> None:
    """A model so slow that a pair has one repeat leaves the load's share unknown."""
    calibrate.script(tg_ns_per_token=30_000_000)
    done = calibrate("--pairs", "5", "--workload", "tg32")
    assert done.exit_code == 0, done.output
    (kept,) = book.calibrations
    assert kept.load_sd is None
    assert "?    loads" in done.output


def test_the_default_workload_is_tg128(calibrate: Command, book: NoiseBook) -> None:
    """Without a workload the generation of 128 tokens is calibrated, in the named interpreter."""
    done = calibrate("--pairs", "5", "--python", sys.executable)
    assert done.exit_code == 0, done.output
    assert [c.workload for c in book.calibrations] == ["tg128"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "fkae"), "fake"),
        (("--workload", "tg"), "not a workload"),
        (("--python", "/nowhere/python"), "--python"),
    ],
)
def test_what_does_not_exist_is_refused(
    calibrate: Command, book: NoiseBook, words: tuple[str, ...], told: str
) -> None:
    """A wrong name is an error before anything is run."""
    done = calibrate(*words)
    assert isinstance(done.exception, AsperfError)
    assert told in str(done.exception)
    assert book.calibrations == ()


def test_too_few_pairs_are_a_usage_error(calibrate: Command) -> None:
    """A spread of fewer than five pairs is none."""
    assert calibrate("--pairs", "4").exit_code == 2


def test_a_dying_engine_keeps_nothing(calibrate: Command, book: NoiseBook) -> None:
    """A crash is an error, and no calibration is made of what ran before it."""
    calibrate.script(faults={"generate": "crash"})
    assert isinstance(calibrate("--pairs", "5").exception, AsperfError)
    assert book.calibrations == ()
