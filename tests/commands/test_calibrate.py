"""`asperf calibrate`, with the scripted engine and a lock of its own."""

import sys
from dataclasses import replace

import pytest

from pytest_asperf.commands.calibration import calibration_section
from pytest_asperf.hardware.conditions import Condition
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs, calibration_of
from pytest_asperf.measure.noise import Calibration, NoiseStore
from tests.commands.conftest import Command, ScriptedCommand

BUSY = Condition("load", "disturbing", "other processes keep 1.1 cores busy", "stop them")


@pytest.fixture
def conditions(monkeypatch: pytest.MonkeyPatch) -> list[Condition]:
    """The simulated machine: quiet, unless a test adds to it."""
    found: list[Condition] = []
    monkeypatch.setattr("pytest_asperf.measure.ab_speed.readiness", lambda: tuple(found))
    return found


@pytest.fixture
def calibrate(scripted_command: ScriptedCommand, conditions: list[Condition]) -> Command:  # noqa: ARG001
    """The command, in a project with a model without results."""
    return scripted_command("calibrate", "--model", "fake:F16")


@pytest.fixture
def book(calibrate: Command) -> NoiseStore:
    """The measured noise of this machine."""
    return NoiseStore(calibrate.folder / "cache", detect())


def test_a_fixed_number_of_pairs_is_run_and_kept(calibrate: Command, book: NoiseStore) -> None:
    """All pairs are run, even if equal builds are shown early, and a table is printed."""
    done = calibrate("--pairs", "7", "--workload", "tg32", "--workload", "pp64")
    assert done.exit_code == 0, done.output
    assert "engines run at nice" in done.stderr
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


def test_a_single_run_in_a_load_says_nothing_of_loads(calibrate: Command, book: NoiseStore) -> None:
    """A prompt so slow that a pair has one repeat leaves the load's share unknown."""
    calibrate.script(pp_ns_per_token=30_000_000)
    done = calibrate("--pairs", "5", "--workload", "pp32")
    assert done.exit_code == 0, done.output
    (kept,) = book.calibrations
    assert kept.load_sd is None
    assert "?    loads" in done.output


def test_the_default_workload_is_tg128(calibrate: Command, book: NoiseStore) -> None:
    """Without a workload the generation of 128 tokens is calibrated, in the named interpreter."""
    done = calibrate("--pairs", "5", "--set", f"python={sys.executable}")
    assert done.exit_code == 0, done.output
    assert [c.workload for c in book.calibrations] == ["tg128"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "fkae"), "fake"),
        (("--workload", "tg"), "not a workload"),
        (("--set", "python=/nowhere/python"), "--set python"),
    ],
)
def test_what_does_not_exist_is_refused(
    calibrate: Command, book: NoiseStore, words: tuple[str, ...], told: str
) -> None:
    """A wrong name is an error before anything is run."""
    done = calibrate(*words)
    assert done.exit_code == 3, done.output
    assert told in done.output
    assert book.calibrations == ()


def test_a_busy_machine_is_not_kept(
    calibrate: Command, book: NoiseStore, conditions: list[Condition]
) -> None:
    """While others keep cores busy the figures are printed, kept for no gate, and the exit is 1."""
    conditions.append(BUSY)
    done = calibrate("--pairs", "5", "--workload", "tg32")
    assert done.exit_code == 4
    told = " ".join(done.output.split())
    assert "this machine is too busy to be calibrated: other processes keep 1.1 cores" in told
    assert "position" in told
    assert book.calibrations == ()


def test_a_spread_that_no_gate_can_use_is_not_kept(
    calibrate: Command, book: NoiseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal builds that differ by factors are other work, for any load just before."""

    def wildly(pairs: WorkloadPairs, result: ABResult, model: str) -> Calibration:
        # Both variants of a pair replay one script, so it cannot separate them.
        return replace(calibration_of(pairs, result, model), spread=1.49)

    monkeypatch.setattr("pytest_asperf.commands.calibration.calibration_of", wildly)
    done = calibrate("--pairs", "5", "--workload", "tg32")
    assert done.exit_code == 4, done.output
    told = " ".join(done.output.split())
    assert "30 pairs can decide a tolerance of 238 % here; a gate needs 25 % or less" in told
    assert book.calibrations == ()


@pytest.mark.parametrize(("spread", "state"), [(0.01, "ok"), (0.2, "warning")])
def test_what_gates_accept_is_held_against_what_can_be_decided(spread: float, state: str) -> None:
    """A machine that cannot decide the tolerance in use is no `ok`."""
    found = Calibration("tg32", "e", "m", "a", spread, 0, 0, 0, None, 20, "2026-01-02", 0.5)
    checks = {check.name: check for check in calibration_section(found, 0.05).checks}
    assert checks["detectable"].state == state
    assert bool(checks["detectable"].remedy) == (state == "warning")


def test_large_shares_have_no_exponent() -> None:
    """720 % is 720 %, and so are small values."""
    found = Calibration("tg32", "e", "m", "a", 1.49, 0, 0, 0, 72.0, 20, "2026-01-02", 0.5)
    told = " ".join(check.detail for check in calibration_section(found, 0.05).checks)
    assert "149 % from pair to pair" in told
    assert "7200 % from load to load" in told
    assert "344 % in 20 pairs" in told


def test_too_few_pairs_are_a_usage_error(calibrate: Command) -> None:
    """A spread of fewer than five pairs is none."""
    assert calibrate("--pairs", "4").exit_code == 3


def test_a_dying_engine_keeps_nothing(calibrate: Command, book: NoiseStore) -> None:
    """A crash is an error, and the runs before it are no calibration."""
    calibrate.script(faults={"generate": "crash"})
    assert calibrate("--pairs", "5").exit_code == 4
    assert book.calibrations == ()


def test_the_cost_of_the_default_gate_is_told(calibrate: Command, book: NoiseStore) -> None:
    """Checks, expected pairs and seconds a pair follow from the stored noise."""
    done = calibrate("--pairs", "7", "--workload", "tg128")
    assert done.exit_code == 0, done.output
    (kept,) = book.calibrations
    assert kept.pair_s > 0
    told = done.output.partition("the default gate")[2]
    assert "s for 4 timed checks, 5 pairs a check at" in told
    assert "tg128 0 %" in told
    assert "3 of them assumed to be like it" in told
    assert "12 checks that are not timed" in told
