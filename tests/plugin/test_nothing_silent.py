"""No test passes silently: what was measured is asserted, and what is asserted is a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

Q8 = '@pytest.mark.quant("Q8_0")\n'
F16 = '@pytest.mark.quant("F16")\n'
SPECULATIVE = '@pytest.mark.speculative(draft="fake:Q4_K_M", target="fake:F16", k=2)\n'
LADDER = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\n'

#: By what a test measures without an assertion, what the error names.
SILENT = {
    F16 + 'def test_it(throughput):\n    throughput("tg8")\n': "tg8 of fake:F16",
    F16 + 'def test_it(throughput):\n    print(throughput("tg8"))\n': "tg8 of fake:F16",
    F16 + 'def test_it(latency):\n    latency("ttft64")\n': "ttft64 of fake:F16",
    F16 + 'def test_it(latency):\n    latency("pp64+tg8").prefill_share\n': "pp64+tg8 of fake:F16",
    LADDER + 'def test_it(ladder):\n    ladder["Q8_0"]\n': "PPL vs F16 of fake:Q8_0",
    LADDER
    + 'def test_it(ladder):\n    ladder.readings("tg8")\n': "tg8 of fake:Q4_K_M, tg8 of fake:Q8_0",
    LADDER + "def test_it(perplexity):\n    pass\n": "PPL vs F16 of fake:Q8_0",
}
ASSERTED = [
    F16 + 'def test_it(throughput):\n    assert throughput("tg8").rate.point > 1\n',
    F16 + 'def test_it(throughput):\n    assert throughput("tg8").result.rates\n',
    F16 + 'def test_it(latency):\n    assert latency("ttft64").time.high > 0\n',
    F16 + 'def test_it(latency):\n    assert max(latency("ttft64").runs_ms) > 0\n',
    LADDER + 'def test_it(ladder):\n    assert ladder["Q8_0"].ppl > 1\n',
    LADDER + "def test_it(perplexity):\n    assert perplexity.kld.low >= 0\n",
    F16 + 'def test_it(throughput, tmp_path):\n    throughput("tg8")\n'
    '    (tmp_path / "x").write_text("x")\n    assert_disk(tmp_path, at_most="1 GiB")\n',
    F16 + 'def test_it(throughput):\n    throughput("tg8")\n    pytest.skip("no need")\n',
]


@pytest.mark.parametrize(("source", "named"), SILENT.items())
def test_a_measurement_without_an_assertion_is_an_error(
    project: Project, source: str, named: str
) -> None:
    """The error names what was measured, and an assertion on the fixture that the test takes."""
    project.test(source)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert f"measured {named}" in text
    assert "and asserted nothing" in text
    assert "what to do:     write an assertion, such as assert_" in text


@pytest.mark.parametrize("source", ASSERTED)
def test_a_number_that_was_read_counts_as_asserted(project: Project, source: str) -> None:
    """Python's own assert on a number is the test's business, and so is a skip."""
    project.test(source)
    assert project.run().ret == pytest.ExitCode.OK


def test_memory_and_speculation_are_asserted_too(live: Project) -> None:
    """Measured on the real engine: a test that reads a number passes, one that does not is red."""
    live.config(engine="llama_cpp", default_model="asperf-draft:F16", max_seconds=5, max_pairs=5)
    pair = '@pytest.mark.speculative(draft="ngram", target="asperf-draft:F16", k=2, n_tokens=16)\n'
    live.test(
        "def test_0(memory):\n    memory(64)\n"
        "def test_1(memory):\n    assert memory(64).kv_bytes > 0\n"
        f"{pair}def test_2(speculation):\n    speculation.accepted()\n"
        f"{pair}def test_3(speculation):\n    assert speculation.acceptance <= 1\n"
        f"{pair}def test_4(speculation):\n    assert speculation.accepted().estimate.point <= 1\n"
    )
    result = live.run()
    result.stdout.fnmatch_lines(["test_it.py F.F..*", "*measured memory at 64 tokens of *"])


def test_a_test_that_failed_anyway_says_only_why(project: Project) -> None:
    """The first error is the one to mend."""
    project.test(F16 + 'def test_it(throughput):\n    throughput("tg8")\n    assert not "mine"\n')
    result = project.run()
    result.assert_outcomes(failed=1)
    assert "asserted nothing" not in result.stdout.str()


#: By a truth value, what is to be written in its place.
TRUTHS = {
    "throughput('tg8')": 'assert_throughput(throughput("tg128"), at_least="40 tok/s")',
    "throughput('tg8').rate": "assert reading.rate.point >= 40",
    "throughput": 'assert_throughput(throughput("tg128"), at_least="40 tok/s")',
    "latency('ttft64')": 'assert_latency(latency("ttft512"), at_most="250 ms")',
    "latency('pp64+tg8').prefill_share": "assert_figure(",
    "not memory": "assert_fits(memory(4096), hardware)",
    "model": 'assert_fits(model, "m2ultra")',
    "perplexity": 'assert_ppl_delta(perplexity, below="1%")',
    "perplexity.comparison": "assert perplexity.delta_ppl.high < 0.01",
    "ladder": "assert_ppl_delta(ladder",
    "speculation": "assert_sd_gain(speculation, when_ratio=2.5)",
    "scores('some text')": "assert scores(text, n_ubatch=1).agrees",
    "engines": "assert_faster(engines",
    "pipelines": "assert_ratio(pipelines",
}


def test_a_measurement_is_no_truth_value(project: Project) -> None:
    """`assert throughput("tg16")` passes whatever was measured: the error shows a comparison."""
    marks = {"speculation": SPECULATIVE, "ladder": LADDER, "perplexity": Q8}
    fixtures = {
        value: value.removeprefix("not ").partition("(")[0].partition(".")[0] for value in TRUTHS
    }
    project.test(
        "\n".join(
            f"{marks.get(fixture, F16)}def test_{n}({fixture}):\n    assert {value}\n"
            for n, (value, fixture) in enumerate(fixtures.items())
        )
    )
    result = project.run("-vv")
    result.assert_outcomes(failed=len(TRUTHS))
    text = result.stdout.str()
    assert text.count("is used as a truth value") >= len(TRUTHS)
    for example in TRUTHS.values():
        assert f"compare it with a limit, as in {example}" in text


#: By an assertion on a fixture that was not called, what it shows.
UNCALLED = {
    'assert_throughput(throughput, at_least="1 tok/s")': 'assert_throughput(throughput("tg128")',
    "assert_bandwidth_utilization(throughput, at_most=1)": (
        'assert_bandwidth_utilization(throughput("tg128")'
    ),
    'assert_latency(latency, at_most="9 s")': 'assert_latency(latency("ttft512")',
    'assert_energy(energy, at_most="9 J/token")': 'assert_energy(energy("tg128")',
    "assert_fits(memory, hardware)": "assert_fits(memory(4096), hardware)",
    "assert_steady(throughput, cv_below='1%')": 'assert_steady(throughput("tg128")',
    "assert_steadier(latency, than=latency)": 'assert_steadier(throughput("tg128")',
    "assert_monotonic([throughput, throughput])": "assert_monotonic([throughput(",
    "assert_monotonic(throughput)": "assert_monotonic([throughput(",
    "assert_as_published(throughput, 'a/b/c/d')": 'assert_as_published(throughput("tg128")',
    "assert_figure(speculation.accepted, at_least=0.1)": "assert_figure(speculation.accepted()",
    "assert_no_regression(gate)": 'assert_no_regression(gate("tg128"',
    "assert_improvement(gate)": 'assert_improvement(gate("tg128")',
    "assert_lossless(speculation.on)": "assert_lossless(speculation)",
    'assert_placement(energy, "ANE")': 'assert_placement(energy("pp512"), "ANE")',
    "assert_ppl_delta(ladder, below='1%')": 'assert_ppl_delta(ladder["Q8_0"], below="1%")',
    "assert_pareto_optimal(perplexity, 'Q8_0')": "assert_pareto_optimal(ladder",
    "assert_equivalent(throughput, 'Q8_0', 'F16')": "assert_equivalent(ladder",
}


def test_an_assertion_refuses_a_fixture_that_was_not_called(project: Project) -> None:
    """It measured tg128 silently; now the error shows the call."""
    known = ("throughput", "latency", "energy", "memory", "speculation", "gate", "ladder")
    lines = []
    for n, assertion in enumerate(UNCALLED):
        taken = [name for name in (*known, "hardware", "perplexity") if name in assertion]
        marks = SPECULATIVE if "speculation" in taken else LADDER if "ladder" in taken else F16
        marks = Q8 if "perplexity" in taken else marks
        lines.append(f"{marks}def test_{n:02}({', '.join(taken)}):\n    {assertion}\n")
    project.test("\n".join(lines))
    result = project.run("-vv", "--asperf-candidate=current", "--asperf-baseline=current")
    result.assert_outcomes(failed=len(UNCALLED))
    text = result.stdout.str()
    for shown in UNCALLED.values():
        assert f"what to do:     write {shown}" in text or f"as in {shown}" in text, shown


UNDECIDED = "assert_ppl_delta(perplexity, below=perplexity.delta_ppl.point)"
PASSES = 'assert_ppl_delta(perplexity, below="50%")'
FAILS = 'assert_ppl_delta(perplexity, below="-50%")'
#: By what a test does: the letter of its outcome with xfail, and with skip.
ENDS = {
    f"{UNDECIDED}; {PASSES}": "xs",
    f"{PASSES}; {UNDECIDED}; {UNDECIDED}": "xs",
    f"{UNDECIDED}; {FAILS}": "FF",
    f"{FAILS}; {UNDECIDED}": "FF",
    f"{UNDECIDED}; throughput('tg8')": "VV",
    f"{UNDECIDED}; throughput('nonsense')": "FF",
    f"{UNDECIDED}; assert not 'mine'": "FF",
    f"{UNDECIDED}; pytest.skip('no need')": "ss",
}


@pytest.mark.parametrize(("option", "column"), [("xfail", 0), ("skip", 1)])
def test_an_undecided_assertion_hides_no_failure(
    project: Project, option: str, column: int
) -> None:
    """The test goes on to its end, and is no failure only if nothing failed after it."""
    project.script("q8", faults={"generate": "crash"})
    project.test(
        "pytestmark = pytest.mark.quant('Q8_0')\n"
        + "".join(
            f"def test_{n}(perplexity, throughput):\n    {body}\n" for n, body in enumerate(ENDS)
        )
    )
    result = project.run(f"--asperf-inconclusive={option}")
    letters = "".join(pair[column] for pair in ENDS.values())
    result.stdout.fnmatch_lines([f"test_it.py {letters} *"])


def test_an_undecided_assertion_of_a_fixture_waits_too(project: Project) -> None:
    """What a project's own fixture asserts is not the end of the test that takes it."""
    project.test(
        f"@pytest.fixture\ndef checked(perplexity):\n    {UNDECIDED}\n    return perplexity\n"
        "pytestmark = pytest.mark.quant('Q8_0')\n"
        f"def test_good(checked):\n    pass\n"
        f"def test_bad(checked):\n    {FAILS.replace('perplexity', 'checked')}\n"
    )
    result = project.run("--asperf-inconclusive=xfail")
    result.stdout.fnmatch_lines(["test_it.py xF *", "*2 INCONCLUSIVE*"])
    project.run().stdout.fnmatch_lines(["test_it.py II *"])


def test_an_undecided_test_runs_anew_if_it_is_rerun(project: Project) -> None:
    """What was left undecided in one run is not carried into the next."""
    plugin = project.with_plugin("rerunfailures")
    project.test(
        "runs = []\n@pytest.mark.quant('Q8_0')\ndef test_it(perplexity):\n    runs.append(1)\n"
        f"    if len(runs) == 1:\n        {UNDECIDED}\n        assert False\n    {PASSES}\n"
    )
    plugin.run("--reruns=1", "--asperf-inconclusive=xfail").assert_outcomes(passed=1)


def test_an_undecided_assertion_in_a_tear_down_ends_it(project: Project) -> None:
    """Nothing comes after it: the tear-down itself is reported, as it was."""
    project.test(
        f"@pytest.fixture\ndef checked(perplexity):\n    yield\n    {UNDECIDED}\n"
        "@pytest.mark.quant('Q8_0')\ndef test_it(checked, perplexity):\n    perplexity.ppl\n"
    )
    project.run("--asperf-inconclusive=skip").assert_outcomes(passed=1, skipped=1)


def test_a_unittest_case_hides_no_failure(project: Project) -> None:
    """Its own failure is reported, whatever was left undecided before."""
    project.test(
        "import unittest\nclass Tests(unittest.TestCase):\n"
        "    @pytest.fixture(autouse=True)\n    def _take(self, perplexity):\n"
        "        self.perplexity = perplexity\n"
        "    @pytest.mark.quant('Q8_0')\n    def test_it(self):\n"
        f"        {UNDECIDED.replace('perplexity', 'self.perplexity')}\n"
        f"        {FAILS.replace('perplexity', 'self.perplexity')}\n"
    )
    project.run("--asperf-inconclusive=xfail").stdout.fnmatch_lines(["test_it.py F *"])


def test_rows_that_differ_in_settings_alone_have_them_in_their_names(project: Project) -> None:
    """On the terminal and in every report: measurements and verdicts alike."""
    project.test(
        "pytestmark = pytest.mark.quant('F16')\n"
        + "".join(
            f"@pytest.mark.model('fake', {settings})\ndef test_{n}(throughput):\n"
            "    throughput('pp64').rate\n"
            f"    assert_throughput(throughput('tg8'), at_least={n})\n"
            for n, settings in enumerate(
                ["threads=1", "threads=1, n_ubatch=64", "threads=1, flash_attn='off'"], start=1
            )
        )
    )
    result = project.run("--asperf-report=md:out.md", "--asperf-report=json:out.json")
    report = (project.path / "out.md").read_text().replace("\\", "")
    for differs in ("n_ubatch=64", "flash_attn=off"):
        result.stdout.fnmatch_lines([f"*tg8 fake:F16, {differs} *"])
        assert f"tg8, {differs}" in report or f"tg8, threads=1, {differs}" in report
        assert f"tg8 fake:F16, {differs}" in (project.path / "out.json").read_text()
    result.stdout.fnmatch_lines(["*pp64 fake:F16, n_ubatch=64 *"])
    assert "threads=1 " not in result.stdout.str()


def test_more_threads_than_cores_are_said(live: Project) -> None:
    """A figure at 64 threads on 2 cores says nothing of the model: a note names both numbers."""
    live.config(engine="llama_cpp", default_model="asperf-draft:F16", max_cv="1000%")
    source = "def test_it(throughput):\n    assert_throughput(throughput('tg1'), at_least=1e-9)\n"
    live.test(source)
    assert "wait for one another" not in live.run().stdout.str()
    live.test(f"@pytest.mark.model('asperf-draft', threads=512)\n{source}")
    live.run("--asperf-report=json:out.json").stdout.fnmatch_lines(
        ["note: *512 threads on * cores: they wait for one another*"]
    )
    assert "512 threads on" in (live.path / "out.json").read_text()
