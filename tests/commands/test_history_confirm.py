"""`asperf history confirm`, and the states that `asperf history` lists."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.analysis.facts import Ran
from pytest_asperf.store import open_store
from tests.commands.conftest import Ended
from tests.store.documents import gated, night

NIGHTS, STEP_AT = 24, 20


def _store(*, build: Callable[[int], str], step: float = 1.05) -> str:
    """Store runs with a step; give the series of their ratios."""
    draw = random.Random(1)  # noqa: S311
    with open_store("h.db") as store:
        for number in range(NIGHTS):
            ratio = math.exp(draw.gauss(0, 0.005)) * (step if number >= STEP_AT else 1)
            row = gated(ratio, base="0", candidate=build(number))
            store.record(night(row, number=number), kind="nightly", is_live=False)
        return next(one.id for one in store.series() if one.key.unit == "log ratio")


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))


def test_states_are_listed_and_steps_are_shown(run_asperf: Callable[..., Ended]) -> None:
    """The list has the date of the step, and the drawing its certainty."""
    series = _store(build=str)
    line = next(
        line
        for line in run_asperf("history", "--store", "h.db").stdout.splitlines()
        if series[:8] in line
    )
    assert line.endswith(" % slower since 2026-11-21")
    assert " 5." in line or " 4." in line
    shown = run_asperf("history", "--store", "h.db", "show", series, "--last", "2").stdout
    state = line.partition("  2026-")[2].split(maxsplit=1)[1]
    assert f"step: {state}\n" in shown  # also if it is not among the points that are drawn


def test_the_same_build_on_both_sides_is_not_gated(run_asperf: Callable[..., Ended]) -> None:
    """No gate can show the cause of other changes; the error names them."""
    series = _store(build=lambda _: "1")
    done = run_asperf("history", "--store", "h.db", "confirm", series)
    assert done.returncode == 3
    assert "the same build ran before and after its step; changed: nothing" in done.stderr


def test_a_series_without_a_step_has_nothing_to_confirm(run_asperf: Callable[..., Ended]) -> None:
    """It names its state."""
    series = _store(build=str, step=1.0)
    done = run_asperf("history", "--store", "h.db", "confirm", series)
    assert done.returncode == 3
    assert "it has no step: steady" in done.stderr


@pytest.mark.parametrize(
    ("step", "sides"),
    [
        (1.05, ("llama-cpp-python==0.3.35", "llama-cpp-python==0.3.36")),
        (0.95, ("llama-cpp-python==0.3.36", "llama-cpp-python==0.3.35")),
    ],
)
def test_releases_are_gated_by_their_names(
    step: float,
    sides: tuple[str, str],
    run_asperf: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slower one is the candidate, and half of the step is accepted."""
    monkeypatch.setattr("tests.store.documents.proof", _release())
    series = _store(build=lambda number: f"0.3.{35 + (number >= STEP_AT)}", step=step)
    asked: list[tuple[Any, dict[str, object]]] = []
    for command in ("gate_builds", "bisect_builds"):
        monkeypatch.setattr(
            f"pytest_asperf.commands.history.{command}",
            lambda options, **given: asked.append((options, given)),
        )
    for words in ((), ("--bisect",)):
        done = run_asperf("history", "--store", "h.db", "confirm", series, *words)
        assert done.returncode == 0, done.stderr
    (gate, given), (bisect, _) = asked
    assert (gate.base, gate.cand) == (bisect.base, bisect.cand) == sides
    assert (gate.models, gate.workloads) == (("m",), ("tg128",))
    assert (bisect.model, bisect.workload) == ("m", "tg128")
    assert given["tolerance"] == bisect.tolerance
    assert bisect.tolerance in {"2.4%", "2.5%", "2.6%"}


def _release() -> Callable[..., Ran]:
    from tests.store.documents import proof  # before it is replaced

    def made(model: str = "m", *, version: str = "1", **requested: Any) -> Ran:
        found = proof(model, version=version, **requested)
        release = found.libraries.replace("lib ", "llama-cpp-python ", 1)
        return replace(found, library="llama-cpp-python", libraries=release)

    return made
