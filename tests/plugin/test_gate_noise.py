"""A gate's report on its machine: readiness, noise, and self-checks."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineFacts
from pytest_asperf.hardware.conditions import Condition
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.measure.ab_speed import ABResult, run_pairs
from pytest_asperf.measure.noise import Calibration, NoiseStore, SelfChecks
from pytest_asperf.measure.running_arms import RunningArm
from tests.plugin.conftest import Project

NOISE = [1_000_000, 1_010_000, 995_000, 1_004_000, 990_000, 1_007_000, 1_001_000]
TWO = """
def test_gate(gate):
    assert_no_regression(gate("tg32", "pp64"))
"""
#: The scripted engine's own description.
ENGINE = EngineFacts(engine="scripted", library="scripted", version="1")


@pytest.fixture
def log(project: Project) -> Path:
    """The operations that the model's engine ran, one a line."""
    return project.path / "log"


@pytest.fixture
def gated(project: Project, log: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one gate of two workloads, and an empty cache."""
    monkeypatch.setenv("ASPERF_CACHE", str(project.path / "cache"))
    project.config(default_model="fake:F16")
    costs = {"tg_ns_per_token": NOISE, "pp_ns_per_token": [n // 100 for n in NOISE]}
    project.script("f16", log=str(log), **costs)
    project.test(TWO)
    return project


@pytest.fixture
def book(gated: Project) -> NoiseStore:
    """The project's knowledge of this machine's noise."""
    return NoiseStore(gated.path / "cache", detect())


def _calibration(workload: str, spread: float) -> Calibration:
    return Calibration(
        workload,
        ENGINE.build,
        "fake:F16",
        "aa",
        spread,
        position=0.0,
        position_low=-0.01,
        position_high=0.01,
        load_sd=None,
        pairs=20,
        measured_on="2026-01-02",
        pair_s=0.25,
    )


def _notes(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("note: ")]


def test_an_unknown_noise_is_told_once(gated: Project) -> None:
    """Without a calibration the gate runs, and one note of both workloads names its command."""
    result = gated.run("--asperf-candidate=current")
    result.assert_outcomes(passed=1)
    (note,) = _notes(result)
    assert "not calibrated for tg32, pp64: run `asperf calibrate --workload=tg32 --" in note
    assert note.endswith("--workload=tg32 --workload=pp64`")


def test_a_tolerance_below_the_noise_is_told(gated: Project, book: NoiseStore) -> None:
    """The note has tolerance, least tolerance, budget and spread; a quiet workload has none."""
    book.keep([_calibration("tg32", 0.1), _calibration("pp64", 0.001)])
    result = gated.run("--asperf-candidate=current", "--asperf-max-pairs=40")
    result.assert_outcomes(passed=1)
    (note,) = _notes(result)
    assert "of 5 % is below 7.33 %, the least that 40 pairs of tg32 can decide on" in note
    assert note.endswith("(A/A spread 10 % on fake:F16, 20 pairs of 2026-01-02)")


def test_a_verdict_names_what_disturbed_and_what_can_be_decided(
    gated: Project, book: NoiseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disturbance is in a FAIL's note, other conditions are left out; readiness is read once."""
    read = []

    def readiness() -> tuple[Condition, ...]:
        read.append(1)
        return (
            # The load is watched by the gate itself, if it is long enough.
            Condition("swap", "disturbing", "3.0 GB in use", "close programs"),
            Condition("memory pressure", "ok", "96% of memory available"),
        )

    monkeypatch.setattr("pytest_asperf.measure.ab_speed.readiness", readiness)
    book.keep([_calibration("tg32", 0.01), _calibration("pp64", 0.01)])
    result = gated.run("--asperf-candidate=slow_by=0.5", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *disturbing before the gate: swap: 3.0 GB in use",
            "E *120 pairs can decide a tolerance of 0.409 % on this machine (A/A spread 1 % on *",
        ]
    )
    result.stdout.no_fnmatch_line("*memory pressure*")
    assert _notes(result) == []
    assert len(read) == 1


def test_a_session_with_self_checks_says_what_a_gate_will_cost(
    gated: Project, book: NoiseStore
) -> None:
    """From the noise that is stored, before anything runs; without the option it does not."""
    book.keep([_calibration("tg32", 0.01)])
    result = gated.run("--asperf-candidate=current", "--asperf-self-check=5")
    result.stdout.fnmatch_lines(["asperf: expected here of equal builds: about 2 s for 2 timed *"])
    result = gated.run("--asperf-candidate=current")
    result.stdout.no_fnmatch_line("*expected here*")


def test_every_second_gate_is_preceded_by_a_self_check(
    gated: Project, book: NoiseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gates are counted over a machine's sessions; the check compares the baseline with itself."""
    builds = ("--asperf-baseline=slow_by=0.2", "--asperf-candidate=current")
    compared: list[bool] = []

    def noted(arms: tuple[partial[RunningArm], partial[RunningArm]], *args: Any) -> ABResult:
        base, candidate = arms
        compared.append(base.args[0] == candidate.args[0])
        return run_pairs(arms, *args)

    monkeypatch.setattr("pytest_asperf.measure.ab_speed.run_pairs", noted)
    checks = []
    for _ in range(3):
        result = gated.run(*builds, "--asperf-self-check=2")
        result.assert_outcomes(passed=1)
        checks.append(book.self_checks)
    assert checks == [SelfChecks(0, 0), SelfChecks(1, 0), SelfChecks(1, 0)]
    assert compared == [False, True, False, False]
    result.stdout.fnmatch_lines(["note: * · A/A self-checks on this machine: 0 FAIL of 1"])


def test_a_self_check_that_fails_is_counted_as_such(
    gated: Project, book: NoiseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that slows the second of two equal variants, the check counts as a FAIL."""

    def unfair(arms: tuple[partial[RunningArm], partial[RunningArm]], *args: Any) -> ABResult:
        base, candidate = arms
        arm, *rest = base.args
        if candidate.args[0] == arm:
            slow = replace(arm, settings=EngineSettings(slow_by=0.5))
            candidate = partial(RunningArm, slow, *rest)
        return run_pairs((base, candidate), *args)

    monkeypatch.setattr("pytest_asperf.measure.ab_speed.run_pairs", unfair)
    result = gated.run(
        "--asperf-baseline=slow_by=0.2", "--asperf-candidate=current", "--asperf-self-check=1"
    )
    result.assert_outcomes(passed=1)
    assert book.self_checks == SelfChecks(1, 1)
    result.stdout.fnmatch_lines(["note: * · A/A self-checks on this machine: 1 FAIL of 1"])
    result.stdout.no_fnmatch_line("*not fit for gating*")


def test_a_machine_that_fails_equal_builds_is_called_unfit(
    gated: Project, book: NoiseStore
) -> None:
    """If the FAIL rate of self-checks is shown to exceed the bound, the gate reports it, once."""
    for failed in (True, False, True, True):
        book.note_self_check(failed=failed)
    result = gated.run("--asperf-candidate=current")
    result.assert_outcomes(passed=1)
    unfit = [note for note in _notes(result) if "not fit for gating" in note]
    assert len(unfit) == 1
    assert "FAIL in at least 11 % of its gates (3 of 4 self-checks)" in unfit[0]


def test_without_the_option_nothing_is_counted(gated: Project, book: NoiseStore) -> None:
    """A gate without self-checks leaves no file behind."""
    gated.run("--asperf-candidate=current")
    assert not (gated.path / "cache" / "hardware").exists()
    assert book.self_checks == SelfChecks()
