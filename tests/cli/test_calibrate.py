"""`asperf calibrate`, with the scripted engine and a lock of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from pytest_asperf.cli import app
from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.detect import detect
from pytest_asperf.measure.noise import NoiseBook
from pytest_asperf.testing import write_script

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
engine = "scripted"
call_timeout_s = 20
[models.fake]
files = { F16 = "f16.json" }
corpus = "corpus.txt"
"""
#: From run to run 1 %.
NOISE = [1_000_000, 1_010_000, 995_000, 1_004_000, 990_000, 1_007_000, 1_001_000]


class Command:
    """Runs the command in a project whose model's timings are chosen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.book = NoiseBook(folder / "cache", detect())

    def script(self, **script: Any) -> None:
        """Write the model's file."""
        write_script(self.folder / "f16.json", **script)

    def __call__(self, *words: str) -> Result:
        """Run it to its end."""
        return CliRunner().invoke(app, ["calibrate", "--model", "fake:F16", *words])


@pytest.fixture
def calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in a project with a model of which nothing is known yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("pytest_asperf.measure.turn.machine_lock_path", lambda: tmp_path / "lock")
    (tmp_path / "asperf.toml").write_text(CONFIG)
    (tmp_path / "corpus.txt").write_text("def area(width):\n    return width\n" * 400)
    command = Command(tmp_path)
    command.script(tg_ns_per_token=NOISE, pp_ns_per_token=[n // 100 for n in NOISE])
    return command


def test_a_fixed_number_of_pairs_is_run_and_kept(calibrate: Command) -> None:
    """All pairs are run, however early equal builds could be told, and a table is printed."""
    done = calibrate("--pairs", "7", "--workload", "tg32", "--workload", "pp64")
    assert done.exit_code == 0, done.output
    kept = {c.workload: c for c in calibrate.book.calibrations}
    assert {name: c.pairs for name, c in kept.items()} == {"tg32": 7, "pp64": 7}
    assert kept["tg32"].model == "fake:F16"
    assert kept["tg32"].engine.startswith("scripted 1")
    # Every load replays the same costs: equal builds, and equal loads.
    assert kept["tg32"].spread == 0
    assert kept["tg32"].load_sd == 0
    for told in ("tg32 fake:F16", "pp64 fake:F16", "spread", "position", "loads", "detectable"):
        assert told in done.output
    assert "in 20 pairs, 0 % in 60 pairs" in done.output


def test_a_single_run_in_a_load_says_nothing_of_loads(calibrate: Command) -> None:
    """A model so slow that a pair has one repeat leaves the load's share unknown."""
    calibrate.script(tg_ns_per_token=30_000_000)
    done = calibrate("--pairs", "5", "--workload", "tg32")
    assert done.exit_code == 0, done.output
    (kept,) = calibrate.book.calibrations
    assert kept.load_sd is None
    assert "?    loads" in done.output


def test_the_default_workload_is_tg128(calibrate: Command) -> None:
    """Without a workload the generation of 128 tokens is calibrated, in the named interpreter."""
    done = calibrate("--pairs", "5", "--python", sys.executable)
    assert done.exit_code == 0, done.output
    assert [c.workload for c in calibrate.book.calibrations] == ["tg128"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "fkae"), "fake"),
        (("--workload", "tg"), "not a workload"),
        (("--python", "/nowhere/python"), "--python"),
    ],
)
def test_what_does_not_exist_is_refused(
    calibrate: Command, words: tuple[str, ...], told: str
) -> None:
    """A wrong name is an error before anything is run."""
    done = calibrate(*words)
    assert isinstance(done.exception, AsperfError)
    assert told in str(done.exception)
    assert calibrate.book.calibrations == ()


def test_too_few_pairs_are_a_usage_error(calibrate: Command) -> None:
    """A spread of fewer than five pairs is none."""
    assert calibrate("--pairs", "4").exit_code == 2


def test_a_dying_engine_keeps_nothing(calibrate: Command) -> None:
    """A crash is an error, and no calibration is made of what ran before it."""
    calibrate.script(faults={"generate": "crash"})
    assert isinstance(calibrate("--pairs", "5").exception, AsperfError)
    assert calibrate.book.calibrations == ()
