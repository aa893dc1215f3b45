"""The output of a session that measured speculation: table, page, a stop's rows."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

#: A model and its own lower level: a pair that needs nothing but the smallest shipped model.
MEASURES = """
MARK = dict(target="asperf-draft:F16", n_tokens=8, prompts="prompts.json")

@pytest.mark.speculative(draft="asperf-draft:Q4_0", k=2, **MARK)
def test_draft(speculation):
    assert speculation.gain.estimate.n == 5

@pytest.mark.speculative(draft="ngram", k=4, **MARK)
def test_lookup(speculation):
    assert speculation.gain.estimate.n == 5
"""
STOPPED = """
import os, signal
from pytest_asperf.engine_process import Worker
from pytest_asperf.measure import speculation as measuring

run_pair, receive = measuring._Suite.run_pair, Worker._receive
events = []

def counted(pairs_runner):
    events.append("pair")
    return run_pair(pairs_runner)

def stopped(worker, *args):
    # The engine was asked for something, and its answer is not read yet.
    if len(events) == {at}:
        events.append("stopped")
        os.kill(os.getpid(), signal.SIGINT)
    return receive(worker, *args)

measuring._Suite.run_pair, Worker._receive = counted, stopped
"""
PAIR = '@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", {})\n'


@pytest.fixture
def pair(live: Project) -> Project:
    """A project with two short prompts."""
    prompts = {"code": ["def area(width, height):\n"], "text": ["# The area is the product of"]}
    (live.path / "prompts.json").write_text(json.dumps(prompts))
    return live


@pytest.fixture
def session(
    pair: Project, command: list[str], environment: dict[str, str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs pytest in a process of its own: status and output."""

    def run(*args: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, "-W", "error", *args],
            cwd=pair.path,
            env=environment | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("options", [("-pbenchmark", "--benchmark-sort=name"), ("-n", "1")])
def test_the_table_and_the_page(
    pair: Project, session: Callable[..., tuple[int, str]], options: tuple[str, ...]
) -> None:
    """Every measurement has a line and a place in the chart, with and without xdist."""
    pair.test(MEASURES)
    code, output = session(
        "--asperf-max-pairs=5", "--asperf-report=html:page.html", *options, COLUMNS="100"
    )
    assert code == pytest.ExitCode.OK, output
    for pairing in ("asperf-draft:Q4_0 → asperf-draft:F16, k=2", "ngram → asperf-draft:F16, k=4"):
        assert output.count(f"\nSD {pairing}: ") == 1
    assert output.count(" accepted, ") == 2
    page = (pair.path / "page.html").read_text("utf-8")
    assert page.count('class="curve"') == 2
    # pytest-benchmark stands back under xdist, and where nobody asked for it.
    for side in ("target alone", "with draft"):
        row = f"\nsd[asperf-draft:Q4_0 → asperf-draft:F16, k=2,{side},threads=1]"
        assert (row in output) == ("--benchmark-sort=name" in options)


@pytest.mark.parametrize(
    "claim",
    [
        "assert_sd_gain(speculation)",
        "assert speculation.gain < 0",
        'assert speculation.gain > speculation.drafted_by("asperf-draft:Q8_0").gain',
        "assert_lossless(speculation)",
    ],
)
def test_what_was_stopped_keeps_its_finished_pairs(
    pair: Project, session: Callable[..., tuple[int, str]], claim: str
) -> None:
    """Ctrl-C gives what the finished pairs say, INCONCLUSIVE, and ends the session."""
    settings = 'k=2, n_tokens=64, prompts="prompts.json"'
    source = STOPPED.format(at=3) + PAIR.format(settings)
    pair.test(f"{source}def test_it(speculation):\n    {claim}\n")
    code, output = session("--asperf-max-pairs=1000", "--asperf-report=json:rows.json")
    assert code == pytest.ExitCode.INTERRUPTED
    rows = json.loads((pair.path / "rows.json").read_text("utf-8"))["rows"]
    (measured,) = [row for row in rows if row.get("interrupted")]
    assert len(measured["prompts"]) == 2
    assert "stopped after 2 pairs" in measured["note"]
    (verdict,) = [row for row in rows if row["outcome"]]
    assert verdict["outcome"] == "INCONCLUSIVE"
    assert verdict["measured"].startswith("stopped after 2 pairs: gain ")
    assert "KeyboardInterrupt" in output


def test_stopped_before_a_pair_there_is_nothing_to_keep(
    pair: Project, session: Callable[..., tuple[int, str]]
) -> None:
    """No verdict is made of no pair."""
    source = STOPPED.format(at=1) + PAIR.format('k=2, prompts="prompts.json"')
    pair.test(f"{source}def test_it(speculation):\n    assert_sd_gain(speculation)\n")
    code, output = session("--asperf-max-pairs=1000")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "INCONCLUSIVE" not in output
    assert "INTERNALERROR" not in output
