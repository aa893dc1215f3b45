"""Times: of prompts, of whole requests, of tokens and of loads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.errors import ElsewhereError
from pytest_asperf.hardware.watch import NOT_WATCHED
from tests.plugin.conftest import Project

HEAD = '@pytest.mark.quant("F16")\ndef test_it(latency):\n    '
#: A load lasts 3 ms, and the first token of 8 after it 80 us.
LOAD_NS = 3_000_000


@pytest.fixture
def quiet(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that is measured as if nothing else ran on the machine."""
    watch = "pytest_asperf.hardware.watch.MachineWatch.seen"
    monkeypatch.setattr(watch, lambda _: NOT_WATCHED)
    return project


def test_a_time_against_its_limits(quiet: Project) -> None:
    """The whole interval decides; p95 of eight runs has no upper bound; a crash gives no time."""
    claims = {  # F16 needs 10 us for a token of a prompt, and 1 ms for one of a generation
        'assert latency("ttft512") <= "6 ms"': ".",
        'assert latency("ttft512") < 5': "F",
        'assert "5000us" <= latency("ttft512") <= "0.1 s"': ".",
        'assert "68 ms" < latency("pp512+tg64") < "69 ms"': ".",
        'assert latency("tg64") <= "1.01 ms"': ".",
        'assert latency("tg64").p95 <= "1.01 ms"': ".",
        'assert latency("tg64").p99 <= "0.9 ms"': "F",
        'assert latency("ttft512").percentile(95) <= "6 ms"': "I",
        'assert latency("pp512+tg64").prefill_share <= "10%"': ".",
        'assert latency("pp512+tg64").prefill_share >= 0.1': "F",
        'assert 900 <= latency("pp512+tg64").effective_rate <= "950 tok/s"': ".",
        'assert "5 ms" <= latency("pp512+tg64").ttft <= "7 ms"': ".",
        'assert latency("pp512+tg64").tpot > "1.1 ms"': "F",
        'assert latency("pp16+tg8", quant="Q8_0") <= "1 s"': "V",
        'assert latency("pp16+tg8", quant="Q4_K_M").ttft <= "1 s"': "V",
    }
    for name, faults in (("q8", {"generate": "crash"}), ("q4", {"logits": "nan"})):
        quiet.script(name, faults=faults)
    quiet.claims(HEAD, claims)
    result = quiet.run("--asperf-repetitions=8")
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            # the number that a bound of p95 needs
            "E   do *measure 59 loads: --asperf-repetitions=59",
        ]
    )


def test_what_is_reported(project: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """A request's row has its time, its share of prefill and its effective rate."""
    project.test(
        HEAD
        + """whole = latency("pp512+tg64")
    assert whole.prefill_share.estimate.point == pytest.approx(5.12 / 68.12)
    assert whole.effective_rate.estimate.point == pytest.approx(64 / 0.06812)
    assert latency("tg64").percentile(50).estimate.n == 5 * 64
    assert latency("ttft512").estimate.unit == "ms"
"""
    )
    found = {row["subject"]: row for row in rows()}
    assert found["pp512+tg64"]["measured"].endswith("7.52 % of it prefill, 940 tok/s in effect")
    assert found["pp512+tg64"]["estimate"]["unit"] == "ms"
    assert found["ttft512"]["measured"].startswith("5.120 ms [")


@pytest.fixture
def loading(quiet: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose model loads slowly, on a system that drops files on request."""
    quiet.script("f16", load_ns=LOAD_NS, log=str(quiet.path / "operations.log"))
    cached = [1.0]

    def drop(_: list[Path]) -> None:
        cached[0] = 0.002

    def share(_: list[Path]) -> float:
        (found, cached[0]) = (cached[0], 1.0)  # the first reader loads it then
        return found

    monkeypatch.setattr("pytest_asperf.measure.loading.drop", drop)
    monkeypatch.setattr("pytest_asperf.measure.loading.cached_share", share)
    return quiet


def test_loads_against_limits(loading: Project) -> None:
    """The time until the first token is judged as any time is, and two loads by their ratio."""
    claims = {
        'assert "3 ms" <= latency("load") <= "3.1 ms"': ".",
        'assert latency("load@cold") <= "2 ms"': "F",
        'assert latency("reload").p95 <= "4 ms"': "I",
        'assert latency("load@cold") / latency("load") <= 1.2': ".",
    }
    letters = loading.judged(HEAD, claims, "--asperf-repetitions=5")
    assert letters == "".join(claims.values())


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
    """The row names the load as cold or warm; a later load is one of the same process."""
    loading.claims(HEAD, [f'assert latency("{name}") <= "1 s"'])
    measured, judged = rows("--asperf-repetitions=4")
    assert measured["subject"] == measured["workload"] == name
    assert judged["subject"] == f"{name} fake:F16"
    assert [run["elapsed_ns"] for run in measured["runs"]] == [LOAD_NS + 80_000] * 4
    facts = dict(judged["facts"])
    assert facts["load"].startswith(says)
    assert facts["first token"] == "at most 0.08 ms of each load"
    lines = (loading.path / "operations.log").read_text().splitlines()
    loads = [line.split()[1] for line in lines if line.startswith("load ")]
    assert len(loads) == 4 + 1  # one is not timed
    assert len(set(loads[1:])) == processes


def test_a_cache_that_cannot_be_emptied_skips_the_test(
    loading: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and the alternatives."""

    def refuse(_: list[Path]) -> None:
        raise ElsewhereError("only root may", why="x", remedy='measure latency("load")')

    monkeypatch.setattr("pytest_asperf.measure.loading.drop", refuse)
    loading.claims(HEAD, ['assert latency("load@cold") <= "1 s"'])
    result = loading.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(['SKIPPED*only root may; measure latency("load")'])


def test_bad_input(loading: Project) -> None:
    """Each is an error of its own test with its remedy; only `latency` accepts loads."""
    loading.script("f16", load_ns=1)  # like a server that asperf did not start
    messages = {
        'assert latency("ttft512") <= "5 min"': "'5 min' is no limit in ms",
        'assert latency("ttft512") <= "40 tok/s"': "ms cannot be compared with tok/s",
        'assert latency("ttft512").percentile(100) <= 5': "percentile 100 is not",
        'assert latency("ttft512").percentile(0.95) <= 5': "percentile 0.95 is not",
        'assert latency("ttft512").prefill_share < 1': "ttft512 is not a whole request",
        'assert latency("pp512+tg1") < 5': "'pp512+tg1' is not a workload",
        'assert latency("load@warm") < 5': "'load@warm' is not a workload",
        'assert throughput("load") > 5': "throughput: load is the time of a load",
        'assert energy("reload") < 5': "reload is the time of a load",
        'assert latency("load") < 5': "scripted does not report the duration of a load",
        'assert latency("tg8").handoff < 5': "no handoff was measured",
    }
    loading.rejects(HEAD.replace("latency", "latency, throughput, energy"), messages)


def test_live(live: Project) -> None:
    """On llama.cpp: a request's prompt and tokens in one context, and loads from disk and cache."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0", threads=1)
def test_request(latency):
    request = latency("pp64+tg16")
    assert 0 < request.prefill_share.estimate.point < 1
    assert request.ttft.estimate.point < request.estimate.point
    assert latency("tg16").percentile(50).estimate.n == 6 * 16
    assert request <= "60 s"

@pytest.mark.model("asperf-draft:Q8_0", threads=1)
@pytest.mark.parametrize("name", ["reload", "load@cold"])
def test_load(latency, name):
    assert "0.1 ms" < latency(name) <= "60 s"
""")
    result = live.run("-rs", "-v")
    result.stdout.fnmatch_lines(["✓ *pp64+tg16 asperf-draft:Q8_0 * ms * ≤ 60,000 *"])
    result.stdout.fnmatch_lines(["✓ *reload asperf-draft:Q8_0 * 0.1 to 60,000 *"])
    if not result.parseoutcomes().get("skipped"):  # the folder may be memory
        result.stdout.fnmatch_lines(["✓ *load@cold asperf-draft:Q8_0 * 0.1 to 60,000 *"])
