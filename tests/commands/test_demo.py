"""`asperf demo`: the verdicts that it names, each measured."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import JudgedFigure, Limit, WithinLimits
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict, guarded
from pytest_asperf.commands.demo_claims import DemoClaim, found
from pytest_asperf.errors import ConfigError, MeasurementError
from pytest_asperf.report.verdict_text import VerdictError
from tests.commands.conftest import Ended
from tests.conftest import time_pairs_quickly

SHOWN = ["PASS", "FAIL", "INCONCLUSIVE", "PASS", "FAIL", "INVALID"]


@pytest.fixture
def demo(
    tmp_path: Path,
    session_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_asperf: Callable[..., Ended],
) -> Callable[[], Ended]:
    """Return a function that runs the command at 80 columns in an empty folder."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: session_cache / "lock"
    )
    return lambda: run_asperf("demo", "--set=seed=7")


@pytest.mark.live
@pytest.mark.usefixtures("short_text")
def test_every_verdict_is_shown(demo: Callable[[], Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """Six assertions end as expected, in at most 25 lines, and the figures are measured ones."""
    # PPL has no noise: of the text that is scored, the first part shows the same.
    monkeypatch.setattr("pytest_asperf.commands.demo._CHUNKS", "6")
    time_pairs_quickly(monkeypatch)
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if re.match(r"[A-Z]{4,} ", line)] == SHOWN
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    interval = r"\[(?:-|-?[\d.]+), -?[\d.]+\] \(\d+ (?:chunks|pairs)\)"
    assert len(re.findall(interval, done.stdout)) == 5
    assert "2048 of 2048 logits are NaN" in done.stdout
    assert done.stderr == ""


def test_another_verdict_is_said_to_be_one(
    demo: Callable[[], Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a verdict is not the expected one, the sentence names it, and the command fails."""
    open_one = Verdict(outcome=Outcome.INCONCLUSIVE, subject="x", problem="0 pairs")
    claim = DemoClaim("tg32 of two builds", Outcome.PASS, "Equally fast.", lambda: open_one)
    monkeypatch.setattr("pytest_asperf.commands.demo_claims.demo_claims", lambda *_: [claim])
    monkeypatch.setattr(
        "pytest_asperf.measure.runner.MeasurementRunner.describe", lambda _: _Described
    )
    done = demo()
    assert done.returncode == 4
    assert "INCONCLUSIVE  tg32 of two builds: 0 pairs" in done.stdout
    assert "Should be PASS." in done.stdout
    assert "asperf doctor" in done.stdout
    assert "Equally fast." not in done.stdout


class _Described:
    release = "llama-cpp-python"


def _raising(error: Exception) -> DemoClaim:
    def make() -> Verdict:
        raise error

    return DemoClaim("a claim", Outcome.INVALID, "", make)


def test_a_claims_verdict_is_what_a_test_would_report() -> None:
    """A broken measurement is INVALID, another verdict is itself, and a mistake is an error."""
    broken = MeasurementError("all NaN", why="no numbers", remedy="look at the file")
    assert _raising(broken).verdict().outcome is Outcome.INVALID
    failed = Verdict(outcome=Outcome.FAIL, subject="x")
    assert _raising(VerdictError(failed)).verdict() is failed
    with pytest.raises(ConfigError):
        _raising(ConfigError("no such model", why="it is measured", remedy="name one")).verdict()


def test_a_guards_finding_is_the_basis_of_what_it_overrules() -> None:
    """The figure of a broken measurement would not show why it is INVALID."""
    estimate = Estimate(4.6, 2.8, 6.1, 7, method="bets", unit="x", counted="pairs")
    limits, figure = WithinLimits(limits=(Limit("<=", 1.4, "x"),)), JudgedFigure("tg32", estimate)
    failed = Verdict(outcome=Outcome.FAIL, subject="it", result=limits, figures=(figure,))
    assert found(failed).startswith("4.6")
    broken = guarded(failed, [Guard.TIMED_WORK.finding("work is left out", "none is")])
    assert found(broken) == "work is left out"
