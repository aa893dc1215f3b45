import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest

from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.watch import MachineSample, MachineSampler
from tests.plugin.conftest import Project

#: No generation uses more memory bandwidth than the slowest chip with a profile has.
ON_M1 = ("--asperf-hardware=m1", "--asperf-source=live")
USES = {
    "throughput": 'assert throughput("tg8") >= 1',
    "utilisation": 'assert throughput("tg8").bandwidth_utilization >= 0.1',
    "order": 'assert_monotonic([throughput("pp8"), throughput("tg8")], direction="falling")',
    "own": 'assert throughput("tg8").estimate.point > 1',
}
HEAD = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    '
TEST = HEAD + "{claim}\n"


@pytest.fixture(scope="module")
def no_gpu() -> None:
    """A build for the processor alone. Imported here, as pytester forgets a test's imports."""
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp can offload")


def test_above_the_roofline_is_invalid_however_it_is_used(project: Project) -> None:
    """1,000 steps/s of 11 GB are 11 TB/s, which an M1 has not: no verdict counts."""
    project.script("f16", bytes_per_token=11 * 10**9)
    project.claims(HEAD, USES.values())
    result = project.run(*ON_M1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py VVVV *",
            *4
            * [
                "tg8 fake:F16: roofline-high: 1000 steps/s that read 11 GB each * of 68.26 GB/s",
                "  why it matters: *the rule: no rate above memory bandwidth*",
                "  what to do: *--asperf-hardware*",
            ],
            *(f"!  test_it.py::test_0{n}  tg8 fake:F16: roofline-high: *" for n in range(4)),
            "4 assertions: 4 INVALID*",
        ]
    )
    result.stdout.no_fnmatch_line("*tg8 fake:F16 *tok/s*")


def test_above_the_roofline_on_a_ladder(project: Project) -> None:
    """One impossible quantization makes the comparison of all impossible."""
    project.script("q8", bytes_per_token=10**11)
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert_monotonic(ladder, "tg8")
""")
    project.run(*ON_M1).stdout.fnmatch_lines(["test_it.py V *", "tg8 fake:Q8_0: roofline-high: *"])


@pytest.mark.parametrize(("n_bytes", "workload"), [(None, "tg8"), (1000, "tg8"), (10**11, "pp8")])
def test_below_the_roofline_a_claim_is_judged(
    project: Project, n_bytes: int | None, workload: str
) -> None:
    """Unknown bytes, few bytes and batches, whose tokens share reads, break no bound."""
    project.script("f16", bytes_per_token=n_bytes)
    project.test(TEST.format(claim=f'assert throughput("{workload}") >= 1'))
    result = project.run(*ON_M1)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*roofline-*: *")


def test_far_below_the_roofline_is_told_and_passes(project: Project) -> None:
    """A warning is in the verdict's details and in the summary's notes, and changes nothing."""
    project.script("f16", bytes_per_token=10**10, tg_ns_per_token=10**9)
    project.test(TEST.format(claim='assert throughput("tg8") >= 0.1'))
    result = project.run(*ON_M1)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["note: tg8 fake:F16: roofline-low: * use 15 % of 68.26 GB/s*"])
    project.test(TEST.format(claim='assert throughput("tg8") >= 100'))
    project.run(*ON_M1, "-v").stdout.fnmatch_lines(
        [
            "E *FAIL: the assertion is shown false",
            "E * roofline-low: * look for a fallback or an overhead)",
        ]
    )


#: One run of five that stalled: a coefficient of variation of 37 %.
STALLED = [1_000_000, 1_000_000, 1_000_000, 1_000_000, 10_000_000]


def test_a_limit_in_reach_of_the_spread_is_not_decided(project: Project) -> None:
    """Neither PASS nor FAIL if runs vary by more than is accepted and could cross the limit."""
    project.script("f16", tg_ns_per_token=STALLED * 2, pp_ns_per_token=333_333)
    claims = [
        'assert throughput("tg8") <= 1500',
        'assert throughput("tg8") >= 2000',
        'assert_monotonic([throughput("tg8"), throughput("pp8")])',
        'assert_monotonic([throughput("pp8"), throughput("tg8")])',
    ]
    project.claims(HEAD, claims)
    result = project.run("--asperf-repetitions=5", "--asperf-max-cv=15%")
    told = ["E   why *over 5 runs vary by 4? %*", "E   do *quieten*: --asperf-max-cv"]
    result.stdout.fnmatch_lines(["test_it.py IIII *", *len(claims) * told])
    assert project.judged(HEAD, claims[:1], "--asperf-repetitions=5", "--asperf-max-cv=50%") == "."


def test_a_limit_out_of_reach_is_decided_and_the_spread_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is the interval's, and the spread is printed with it."""
    claims = {
        'assert throughput("tg8") >= 1': ".",
        'assert throughput("tg8") >= "40 tok/s"': ".",
        'assert throughput("tg8") >= "50000 tok/s"': "F",
        'assert throughput("tg8").bandwidth_utilization <= "100%"': ".",
        'assert throughput("tg8").bandwidth_utilization >= 0.5': "F",
        'assert_monotonic([throughput("tg8"), throughput("pp8")])': ".",
    }
    m1 = Machine(os="macOS", arch="arm64", cpu_brand="Apple M1")
    monkeypatch.setattr("pytest_asperf.plugin.session.detect", lambda: m1)
    project.script("f16", tg_ns_per_token=STALLED * 2, bytes_per_token=10**6)
    project.claims(HEAD, claims)
    report = project.path / "r.json"
    result = project.run(*ON_M1, "--asperf-repetitions=5", f"--asperf-report=json:{report}")
    result.stdout.fnmatch_lines([f"test_it.py {''.join(claims.values())} *"])
    verdicts = [row for row in json.loads(report.read_text("utf-8"))["rows"] if row["outcome"]]
    assert len(verdicts) == len(claims)
    for verdict in verdicts:
        assert re.search(r"over 5 runs vary by 4\d %", json.dumps(verdict)), verdict


LAYERS = """
@pytest.mark.model("asperf-draft", n_gpu_layers={layers}, threads=1, flash_attn="{flash}")
@pytest.mark.quant("Q8_0")
def test_it({fixture}):
    {claim}
"""


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("fixture", "claim"),
    [("throughput", 'assert throughput("tg8") >= 1'), ("perplexity", "assert perplexity.kld < 1")],
)
def test_layers_that_no_gpu_took(live: Project, fixture: str, claim: str) -> None:
    """llama.cpp built for the CPU ignores layers requested on a GPU; the result is INVALID."""
    live.test(LAYERS.format(layers=99, flash="on", fixture=fixture, claim=claim))
    live.run().stdout.fnmatch_lines(
        [
            "test_it.py V *",
            "*asperf-draft:*: path-mismatch: n_gpu_layers 99 was requested and 0 ran",
            "  what to do: *engine build*",
        ]
    )


@pytest.mark.parametrize("flash", ["on", "off", "auto"])
def test_what_was_asked_for_ran(live: Project, flash: str) -> None:
    """The same settings, as llama.cpp can do them here, are no mismatch."""
    claim = 'assert throughput("tg8") >= 1'
    live.test(LAYERS.format(layers=0, flash=flash, fixture="throughput", claim=claim))
    live.run().assert_outcomes(passed=1)


def test_a_context_that_is_not_what_was_asked_for(project: Project) -> None:
    """An engine that turned off the requested flash attention is found at the end."""
    project.test("""
@pytest.mark.model("fake:F16", flash_attn="on")
def test_it(throughput):
    assert throughput("tg8") >= 1
""")
    result = project.run()
    result.stdout.fnmatch_lines(["test_it.py V *", "*flash_attn on was requested and off ran"])
    for said in ("on", "unknown"):
        project.script("f16", flash_attn=said)
        project.run().assert_outcomes(passed=1)


@pytest.mark.usefixtures("no_gpu")
def test_a_gate_whose_arm_did_something_else(live: Project) -> None:
    """It is found before any pair is run."""
    live.test("""
@pytest.mark.model("asperf-draft:F16", threads=1)
def test_it(gate):
    assert_no_regression(gate("tg8"))
""")
    result = live.run("--asperf-candidate=current,n_gpu_layers=4,tensor_split=1/1")
    result.stdout.fnmatch_lines(
        [
            "test_it.py V *",
            "*n_gpu_layers 4 was requested and 0 ran; tensor_split 1/1 was requested and *",
        ]
    )


def _at_level(sample: MachineSample, level: int) -> MachineSample:
    return replace(sample, seen=replace(sample.seen, thermal_level=level))


def test_a_machine_that_cools_itself_during_a_run_is_invalid(
    project: Project, rows: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live runs call the guards of the machine, and the report has its samples."""
    sample = MachineSampler.sample
    levels: Iterator[int] = repeat(0)
    monkeypatch.setattr(
        "pytest_asperf.hardware.watch.MachineSampler.sample",
        lambda sampler: _at_level(sample(sampler), next(levels)),
    )
    project.test(TEST.format(claim=USES["throughput"]))
    measured, claim = rows()
    assert claim["outcome"] == "PASS"
    seen = measured["watched"]["samples"][-1]
    assert (seen["thermal_level"], seen["swap_bytes"] >= 0) == (0, True)
    levels = chain([0], repeat(2))
    (broken,) = rows()
    assert broken["outcome"] == "INVALID"
    assert "tg8 fake:F16: throttled: thermal pressure" in broken["measured"]
    assert broken["watched"]["samples"][-1]["thermal_level"] == 2
