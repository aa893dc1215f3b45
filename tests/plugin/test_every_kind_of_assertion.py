"""One file with every kind of assertion, measured live as a user runs it."""

import pytest

from tests.plugin.conftest import Project

EVERY_KIND = """
import pytest
from pytest_asperf import assert_no_regression, assert_ppl_delta, assert_sd_gain

def test_speed(throughput):
    assert throughput("tg16") >= "1 tok/s"
    assert throughput("tg16").cv < "500%"

def test_wait(latency):
    assert latency("ttft16") <= "60 s"
    assert latency("itl16").p95 <= "10 s"

@pytest.mark.quant_ladder("Q8_0", "Q4_K_M", baseline="F16")
def test_near_lossless(perplexity):
    assert perplexity.delta < "90%"
    assert perplexity.kld < 1
    assert_ppl_delta(perplexity, below="90%")

@pytest.mark.quant_ladder("F16", "Q4_K_M")
def test_worth_it(ladder):
    q4, f16 = ladder["Q4_K_M"], ladder["F16"]
    assert 0.02 <= q4.throughput("tg16") / f16.throughput("tg16") <= 50
    assert q4.size / f16.size <= "60%"

@pytest.mark.speculative(draft="asperf-draft:Q8_0", target="asperf-draft:F16", k=2, n_tokens=8)
def test_draft(speculation):
    assert_sd_gain(speculation, when_ratio=1000)
    assert speculation.acceptance >= "1%"

def test_cost(memory):
    assert memory(64) <= "8 GiB"

def test_upgrade(gate):
    assert_no_regression(gate("tg16", "ppl"), tolerance="900%")
"""


@pytest.mark.usefixtures("few_prompts")
def test_every_kind_passes_on_llama_cpp(live: Project) -> None:
    """Limits, pairs, chains, scores, speculation, memory and a gate, each with its row."""
    live.test(EVERY_KIND)
    # A p95 needs 59 runs if the tokens of each count as one, as while other work runs.
    budget = "--asperf-max-seconds=60", "--asperf-repetitions=60"
    result = live.run("--asperf-candidate=current", *budget, "--asperf-seed=1")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["*15 assertions: 15 PASS*"])
