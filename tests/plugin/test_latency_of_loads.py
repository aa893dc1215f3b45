"""`latency("load")`, `latency("load@cold")` and `latency("reload")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.errors import ElsewhereError
from pytest_asperf.hardware.watch import NOT_WATCHED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.plugin.conftest import Project

TEST = '@pytest.mark.quant("F16")\ndef test_it(latency):\n    '
#: A load takes 3 ms, and the first token of 8 after it 80 us.
LOAD_NS = 3_000_000


@pytest.fixture
def loading(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose model takes a while to load, on a quiet system that drops files as asked."""
    watch = "pytest_asperf.hardware.watch.MachineWatch.seen"
    monkeypatch.setattr(watch, lambda _: NOT_WATCHED)
    project.script("f16", load_ns=LOAD_NS, log=str(project.path / "operations.log"))
    cached = [1.0]

    def drop(_: list[Path]) -> None:
        cached[0] = 0.002

    def share(_: list[Path]) -> float:
        (found, cached[0]) = (cached[0], 1.0)  # whoever looks loads it then
        return found

    monkeypatch.setattr("pytest_asperf.measure.loads.drop", drop)
    monkeypatch.setattr("pytest_asperf.measure.loads.cached_share", share)
    return project


def _loads(project: Project) -> list[str]:
    """The process of each load, in their order."""
    lines = (project.path / "operations.log").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("load ")]


def test_loads_against_limits(loading: Project) -> None:
    """The time until the first token is judged as any latency is."""
    claims = [
        ('assert_latency(latency("load"), at_most="3.1 ms", at_least="3 ms")', "."),
        ('assert_latency(latency("load@cold"), at_most="2 ms")', "F"),
        ('assert_latency(latency("reload"), at_most="4 ms", percentile=95)', "I"),
        ('assert_figure(latency("load@cold").over(latency("load")), at_most=1.2)', "."),
    ]
    letters = loading.letters([TEST + claim for claim, _ in claims], "--asperf-repetitions=5")
    assert letters == "".join(letter for _, letter in claims)


@pytest.mark.parametrize(
    ("name", "processes", "says"),
    [
        ("load", 4, "first of a fresh process, file cache warm: at least 100 % of "),
        ("load@cold", 4, "first of a fresh process, file cache cold: at most 0.2 % of "),
        ("reload", 1, "again in one process, file cache warm: at least 100 % of "),
    ],
)
def test_which_load_it_was(
    name: str,
    processes: int,
    says: str,
    loading: Project,
    rows: Callable[..., list[dict[str, Any]]],
) -> None:
    """The row names the load and says cold or warm; a later load is one of the same process."""
    loading.test(TEST + f'assert_latency(latency("{name}"), at_most="1 s")')
    measured, judged = rows("--asperf-repetitions=4")
    assert measured["subject"] == measured["workload"] == name
    assert judged["subject"] == f"{name} fake:F16"
    assert [run["elapsed_ns"] for run in measured["runs"]] == [LOAD_NS + 80_000] * 4
    facts = dict(judged["facts"])
    assert facts["load"].startswith(says)
    assert facts["load"].endswith("0.08 ms are the first token")
    loads = _loads(loading)
    assert len(loads) == 4 + 1 + (name == "reload")  # one is not timed
    assert len(set(loads[1:])) == processes


def test_a_cache_that_cannot_be_emptied_skips_the_test(
    loading: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and what can be measured instead."""

    def refuse(_: list[Path]) -> None:
        raise ElsewhereError("only root may", why="x", remedy='measure latency("load")')

    monkeypatch.setattr("pytest_asperf.measure.loads.drop", refuse)
    loading.test(TEST + 'assert_latency(latency("load@cold"), at_most="1 s")')
    result = loading.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(['SKIPPED*only root may; measure latency("load")'])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TEST + 'latency("load@warm")', "*'load@warm' is not a workload*"),
        (TEST.replace("latency", "throughput") + 'throughput("load")', "*time of a load*"),
        (TEST.replace("latency", "energy") + 'energy("reload")', "*reload is the time of a load*"),
    ],
)
def test_loads_are_latencies_alone(loading: Project, source: str, message: str) -> None:
    """Other fixtures refuse them by name, and say what to take."""
    loading.test(source)
    loading.run().stdout.fnmatch_lines([message])


def test_an_engine_that_does_not_say_is_refused(loading: Project) -> None:
    """A server that was started by somebody else is loaded already."""
    loading.script("f16", load_ns=1)
    loading.test(TEST + 'latency("load")')
    loading.run().stdout.fnmatch_lines(["*scripted does not say how long a load takes*"])


def test_live(live: Project) -> None:
    """On llama.cpp: a model is loaded from a file that has left the cache, and from the cache."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0", threads=1)
def test_it(latency):
    for name in ("reload", "load@cold"):
        reading = latency(name)
        assert all(run.step_ns[0] > 10**5 for run in reading.reading.result.runs)
        assert_latency(reading, at_most="60 s")
""")
    result = live.run("-rs", "-v")
    result.stdout.fnmatch_lines(["PASS reload asperf-draft:Q8_0 at most 60,000 ms: *"])
    if not result.parseoutcomes().get("skipped"):  # the folder may be memory
        result.stdout.fnmatch_lines(["PASS load@cold asperf-draft:Q8_0 at most 60,000 ms: *"])
