"""The gate: a candidate build against the baseline, through pytest."""

import re

import pytest

from tests.harmful_interpreter import write_interpreter
from tests.plugin.conftest import Project

GATE = """
def test_gate(gate):
    assert_no_regression(gate("tg32"))
"""
#: A spread of 1 %, so that ratios are not all alike.
NOISE = [1_000_000, 1_010_000, 995_000, 1_004_000, 990_000, 1_007_000, 1_001_000]


@pytest.fixture
def gated(project: Project) -> Project:
    """A project whose model's timings spread by 1 %."""
    project.config(default_model="fake:F16")
    project.script("f16", tg_ns_per_token=NOISE, pp_ns_per_token=[n // 100 for n in NOISE])
    project.test(GATE)
    return project


def test_equal_builds_pass(gated: Project) -> None:
    """A build against itself passes, in one line with rates, change, interval, limit and pairs."""
    result = gated.run("--asperf-candidate=current")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["✓ *gate tg32 fake:F16 * * → * tok/s, * time [[]*, *] * ≤ +5 % * pairs *"]
    )


def test_a_slower_candidate_fails(gated: Project) -> None:
    """A FAIL names the size, the interval, both builds and their difference."""
    result = gated.run("--asperf-candidate=slow_by=0.1", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *assertion: * within +5 %",
            "E *measured: *→ * tok/s, +10.* % slower [[]*]*",
            "E *Wald's bound: * pairs, *",
            "E *random order, seed *",
            "E *differs: settings * slow_by=0.1*",
            "E *baseline model: *",
            "E *candidate model: *",
        ]
    )


def test_a_tail_is_gated_by_its_percentile(gated: Project) -> None:
    """The p95 of all tokens of a pair, in ms, is an assertion of its own."""
    gated.test('def test_gate(gate):\n    assert_no_regression(gate("itl32@p95"))\n')
    result = gated.run("--asperf-candidate=slow_by=0.2", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *of each build's tokens in a pair the p95 is compared"])
    result.stdout.fnmatch_lines(["✗ *gate itl32@p95 fake:F16 *→ 1.2* ms, +2* % slower *"])


def test_a_faster_candidate_passes(gated: Project) -> None:
    """A gain is no regression."""
    result = gated.run("--asperf-baseline=slow_by=0.2", "--asperf-candidate=current")
    result.assert_outcomes(passed=1)


def test_without_a_candidate_it_is_skipped(gated: Project) -> None:
    """With nothing to judge, the error lists the names to use."""
    result = gated.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*nothing to gate: *--asperf-candidate*"])


def test_a_seed_replays_the_order(gated: Project) -> None:
    """Equal seeds give equal orders, and so equal pairs."""
    lines = []
    for _ in range(2):
        result = gated.run("--asperf-candidate=current", "--asperf-seed=7")
        found = re.search(r"% time \[[^\]]+\]", result.stdout.str())
        assert found is not None
        lines.append(found[0])
    assert lines[0] == lines[1]


def test_workloads_share_the_error(gated: Project) -> None:
    """Each of two workloads has its verdict, at half of the error."""
    gated.test(
        'def test_gate(gate):\n    assert_no_regression(gate("tg32", "pp64"), tolerance="5%")'
    )
    result = gated.run("--asperf-candidate=slow_by=0.5", "-v")
    result.stdout.fnmatch_lines(["✗ *gate tg32 *", "✗ *gate pp64 *", "2 assertions: 2 FAIL*"])
    result.stdout.fnmatch_lines(["E *90 % two-sided*"])


def test_a_candidate_that_alone_crashes_fails(gated: Project) -> None:
    """The test fails, and its note has the observation and the log's last words."""
    code = "def chosen(request):\n    return 'crashes' if request['op'] == 'generate' else ''"
    harmful = write_interpreter(gated.path / "harmful", code)
    result = gated.run(f"--asperf-candidate={harmful}", "-v")
    result.assert_outcomes(failed=1)
    seen = "candidate crashed twice (SIGSEGV), baseline ran twice in between"
    result.stdout.fnmatch_lines(["E *runs as the baseline does", f"E *measured: *{seen}"])


def test_two_crashing_builds_are_invalid(gated: Project) -> None:
    """Builds that both die are not judged."""
    gated.script("f16", faults={"generate": "crash"})
    result = gated.run("--asperf-candidate=current")
    result.stdout.fnmatch_lines(["*SIGSEGV*", "*1 invalid*"])


def test_a_build_that_there_is_not_is_refused(gated: Project) -> None:
    """A typo ends the session before any test runs."""
    result = gated.run("--asperf-candidate=curent")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "did you mean 'current'" in result.stderr.str()


def test_builds_of_the_catalogue(gated: Project) -> None:
    """A build declared in the configuration file is found by name, with its settings."""
    gated.config("[builds.slow]\nsettings = { slow_by = 0.5 }", default_model="fake:F16")
    result = gated.run("--asperf-candidate=slow")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["fake:F16 = * · gate: current → slow", "✗ *gate tg32 *"])


PPL = """
def test_gate(gate):
    assert_no_regression(gate("ppl"), ppl_below="1%")
"""


def test_equal_builds_have_equal_ppl(gated: Project) -> None:
    """The same file under one build passes before the whole corpus is scored."""
    gated.test(PPL)
    result = gated.run("--asperf-candidate=current", "--asperf-chunks=all")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["✓ *gate ppl fake:F16 * < 1 % *"])


def test_a_worse_candidate_fails_on_ppl(gated: Project) -> None:
    """A setting that costs quality FAILs, and the note has the chunks and the difference."""
    gated.script("f16", noise_by_type_k={"q4_0": 0.5})
    gated.test(PPL)
    result = gated.run("--asperf-candidate=type_k=q4_0", "--asperf-chunks=all", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *assertion: *ΔPPL * below 1 %",
            "E *of * chunks in random order*",
            "E *differs: settings *",
        ]
    )


def test_a_broken_baseline_is_no_improvement(gated: Project) -> None:
    """A candidate that halves the baseline's PPL shows that the baseline is broken."""
    gated.script("f16", noise_by_type_k={"q4_0": 4.0})
    gated.test(PPL)
    result = gated.run("--asperf-baseline=type_k=q4_0", "--asperf-candidate=current")
    result.stdout.fnmatch_lines(["test_it.py V *", "*PPL changes by -*"])


def test_speed_and_quality_share_the_error(gated: Project) -> None:
    """One gate of two workloads and PPL gives three verdicts, each at a third of the error."""
    gated.test('def test_gate(gate):\n    assert_no_regression(gate("tg32", "ttft64", "ppl"))')
    result = gated.run("--asperf-candidate=current")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["✓ *tg32 *", "✓ *ttft64 * ms, *", "✓ *ppl *", "3 assertions: 3 PASS*"]
    )


def test_a_latency_is_no_rate(gated: Project) -> None:
    """TTFT is gated, not measured as tokens per second."""
    gated.test('def test_it(throughput):\n    throughput("ttft64")')
    result = gated.run()
    result.stdout.fnmatch_lines(["*ttft64 is a latency*", '*latency("ttft64")*'])


def test_speculation_is_gated(live: Project) -> None:
    """The pair of the test's marker speculates in both builds; time alone FAILs it, shown twice."""
    (live.path / "prompts.json").write_text('{"code": ["def area(width, height):", "class A:"]}')
    live.test(
        '@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", k=2, '
        'n_tokens=16, prompts="prompts.json")\n'
        'def test_gate(gate):\n    assert_no_regression(gate("sd"))'
    )
    result = live.run("--asperf-candidate=slow_by=2", "--asperf-max-pairs=20", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["✗ *gate sd asperf-draft:Q4_0 → asperf-draft:F16, k=2*"])
    result.stdout.fnmatch_lines(["E *candidate: * of * drafted tokens accepted"])
