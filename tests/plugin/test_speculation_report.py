"""The output of a session that measured speculation: table, page, a stop's rows."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from pytest_asperf.engine_process import Worker
from pytest_asperf.measure.paired_runner import PairedRunner
from tests.plugin.conftest import Project

#: A model and its own smaller quantization: a pair that needs only the smallest shipped model.
MEASURES = """
MARK = dict(target="asperf-draft:F16", n_tokens=8, prompts="prompts.json")

@pytest.mark.speculative(draft="asperf-draft:Q4_0", k=2, **MARK)
def test_draft(speculation):
    assert speculation.gain.estimate.n == 5

@pytest.mark.speculative(draft="ngram", k=4, **MARK)
def test_lookup(speculation):
    assert speculation.gain.estimate.n == 5
"""
PAIR = '@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", {})\n'


@pytest.mark.parametrize("options", [("-pbenchmark", "--benchmark-sort=name"), ("-pxdist", "-n1")])
def test_the_table_and_the_page(
    pair: Project, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Every measurement has a line and a place in the chart, with and without xdist."""
    monkeypatch.setenv("COLUMNS", "100")
    pair.test(MEASURES)
    result = pair.run("--asperf-max-pairs=5", "--asperf-report=html:page.html", *options)
    result.assert_outcomes(passed=2)
    output = result.stdout.str()
    for pairing in ("asperf-draft:Q4_0 → asperf-draft:F16, k=2", "ngram → asperf-draft:F16, k=4"):
        assert output.count(f"\nSD {pairing}: ") == 1
    assert output.count(" accepted, ") == 2
    page = (pair.path / "page.html").read_text("utf-8")
    assert page.count('class="curve"') == 2
    # pytest-benchmark is disabled under xdist, and without its option.
    for side in ("target alone", "with draft"):
        row = f"\nsd[asperf-draft:Q4_0 → asperf-draft:F16, k=2,{side},threads=1]"
        assert (row in output) == ("--benchmark-sort=name" in options)


@pytest.fixture
def stopped(pair: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Return a function that runs a claim, and stops the session in the pair of this number."""

    def run(claim: str, at: int, *args: str) -> pytest.RunResult:
        begin_pair, receive = PairedRunner.begin_pair, Worker._receive
        events: list[str] = []

        def counted(paired: PairedRunner) -> None:
            events.append("pair")
            begin_pair(paired)

        def interrupted(worker: Worker, *given: Any) -> Any:
            # The engine got a request, and its answer is not read yet.
            if len(events) == at:
                events.append("stopped")
                os.kill(os.getpid(), signal.SIGINT)
            return receive(worker, *given)

        monkeypatch.setattr(PairedRunner, "begin_pair", counted)
        monkeypatch.setattr(Worker, "_receive", interrupted)
        settings = 'k=2, n_tokens=64, prompts="prompts.json"'
        pair.test(f"{PAIR.format(settings)}def test_it(speculation):\n    {claim}\n")
        options = (*pair.plugins, "-W", "error", "--asperf-max-pairs=1000", *args)
        result = pair.pytester.runpytest_inprocess(*options, no_reraise_ctrlc=True)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        return result

    return run


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
    pair: Project, stopped: Callable[..., pytest.RunResult], claim: str
) -> None:
    """Ctrl-C gives the finished pairs' result, INCONCLUSIVE, and ends the session."""
    result = stopped(claim, 3, "--asperf-report=json:rows.json")
    rows = json.loads((pair.path / "rows.json").read_text("utf-8"))["rows"]
    (measured,) = [row for row in rows if row.get("interrupted")]
    assert len(measured["prompts"]) == 2
    assert "stopped after 2 pairs" in measured["note"]
    (verdict,) = [row for row in rows if row["outcome"]]
    assert verdict["outcome"] == "INCONCLUSIVE"
    assert verdict["measured"].startswith("stopped after 2 pairs: gain ")
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])


def test_stopped_before_a_pair_there_is_nothing_to_keep(
    stopped: Callable[..., pytest.RunResult],
) -> None:
    """No verdict is made of no pair."""
    output = stopped("assert_sd_gain(speculation)", 1).stdout.str()
    assert "INCONCLUSIVE" not in output
    assert "INTERNALERROR" not in output
