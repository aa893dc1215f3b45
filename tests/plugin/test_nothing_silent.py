"""No test passes silently: measurements are asserted, and assertions are measured."""

import json
import re
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.plugin.conftest import Project

Q8 = '@pytest.mark.quant("Q8_0")\n'
F16 = '@pytest.mark.quant("F16")\n'
SPECULATIVE = '@pytest.mark.speculative(draft="fake:Q4_K_M", target="fake:F16", k=2)\n'
LADDER = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\n'

UNDECIDED = "assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)"
GATED = ("--asperf-candidate=current", "--asperf-baseline=current")

#: By a test's measurement without an assertion: the name in the error.
SILENT = {
    F16 + 'def test_it(throughput):\n    throughput("tg8")\n': "tg8 fake:F16",
    F16 + 'def test_it(throughput):\n    print(throughput("tg8"))\n': "tg8 fake:F16",
    F16
    + 'def test_it(throughput):\n    throughput("tg8").cv\n': "CV of tg8 fake:F16, tg8 fake:F16",
    F16 + 'def test_it(latency):\n    latency("ttft64")\n': "ttft64 fake:F16",
    F16 + 'def test_it(latency):\n    latency("pp64+tg8").prefill_share\n': (
        "pp64+tg8 fake:F16, share of prefill in pp64+tg8 fake:F16"
    ),
    LADDER + 'def test_it(ladder):\n    ladder["Q8_0"].kld\n': "KLD fake:Q8_0 vs F16",
    LADDER
    + 'def test_it(ladder):\n    a, b = (ladder[q].throughput("tg8") for q in ladder.quants)\n'
    "    a / b\n": "tg8 fake:Q4_K_M, tg8 fake:Q8_0, tg8 fake:Q8_0 / tg8 fake:Q4_K_M",
    Q8 + "def test_it(perplexity):\n    perplexity.ppl\n": "PPL fake:Q8_0 vs F16",
    F16 + "def test_it(model):\n    model.scores('some text')\n": "a text's NLL of fake:F16",
}
ASSERTED = [
    F16 + 'def test_it(throughput):\n    assert throughput("tg8").estimate.point > 1\n',
    F16 + 'def test_it(latency):\n    assert latency("ttft64").estimate.high > 0\n',
    LADDER + 'def test_it(ladder):\n    assert ladder["Q8_0"].ppl > 1\n',
    LADDER + "def test_it(perplexity):\n    assert perplexity.kld.estimate.low >= 0\n",
    F16 + 'def test_it(throughput, model):\n    throughput("tg8")\n    assert model.disk <= 1\n',
    F16 + 'def test_it(throughput):\n    throughput("tg8")\n    pytest.skip("no need")\n',
    F16 + 'def test_it(throughput):\n    verdict = throughput("tg8") >= 1e9\n'
    '    assert verdict.outcome == "FAIL"\n',
    F16 + 'def test_it(throughput):\n    assert 900 <= throughput("tg8") <= "1100 tok/s"\n',
    F16 + 'def test_it(throughput):\n    told = "900 tok/s and at most 950 tok/s"\n'
    "    with pytest.raises(VerdictError, match=told) as caught:\n"
    '        assert 900 <= throughput("tg8") <= 950\n'
    '    assert caught.value.verdict.outcome == "FAIL"\n',
]
#: By a test's comparison without an assertion: the assertion in the error.
FORGOTTEN = {
    'throughput("tg8") >= 40': "tg8 fake:Q8_0 at least 40 tok/s",
    'is_fast = throughput("tg8") >= 1e9': "tg8 fake:Q8_0 at least 1,000,000,000 tok/s",
    'print(throughput("tg8") >= 40)': "tg8 fake:Q8_0 at least 40 tok/s",
    'str(throughput("tg8") >= 40)': "tg8 fake:Q8_0 at least 40 tok/s",
    '40 <= throughput("tg8") <= 1e9': (
        "tg8 fake:Q8_0 at least 40 tok/s and at most 1,000,000,000 tok/s"
    ),
    'assert throughput("tg8") >= 40; throughput("tg8").cv < "1%"': "CV of tg8 fake:Q8_0 below 1 %",
    'assert (throughput("tg8") >= 1e9).figures': "tg8 fake:Q8_0 at least 1,000,000,000 tok/s",
    'assert (throughput("tg8") >= 1e9).result': "tg8 fake:Q8_0 at least 1,000,000,000 tok/s",
    'throughput("tg8") / throughput("pp8") < 1; assert throughput("tg8") >= 40': (
        "tg8 / pp8 in fake:Q8_0 below 1x"
    ),
}


def one_test_each(bodies: Iterable[str], fixture: str = "throughput") -> str:
    """A module with a test for each body, in a line of its own."""
    head = "pytestmark = pytest.mark.model('fake:Q8_0')\n"
    return head + "".join(
        f"def test_{n:02}({fixture}):\n    {body}\n" for n, body in enumerate(bodies)
    )


def test_a_measurement_without_an_assertion_is_an_error(project: Project) -> None:
    """The error names the measurement, and an assertion on the test's own fixture."""
    told = {source: f"measured {named} and asserted nothing" for source, named in SILENT.items()}
    project.rejects("{}", told)


def test_a_number_or_an_outcome_that_was_read_counts_as_asserted(project: Project) -> None:
    """Python's own assert on either is the test's business, and so is a skip."""
    assert project.judged("{}", ASSERTED) == "......s..."


def test_an_xfail_hides_no_silent_test(project: Project) -> None:
    """A test that judges nothing is no expected failure, in its set-up and in its own code."""
    project.test(
        "pytestmark = [pytest.mark.xfail(strict=True), pytest.mark.quant('F16')]\n"
        "@pytest.fixture\ndef checked(throughput):\n    assert throughput('tg8')\n"
        "def test_0(checked):\n    pass\n"
        "def test_1(throughput):\n    pass\n"
        "def test_2(throughput):\n    throughput('tg8')\n"
        "def test_3(throughput):\n    throughput('tg8') >= 1\n"
        "def test_4(throughput):\n    assert throughput('tg8')\n"
        "def test_5(throughput):\n    assert (throughput('tg8') >= 1).outcome\n"
        "def test_6(throughput):\n    assert throughput('tg8') >= 1e9\n"
    )
    project.run().assert_outcomes(errors=1, failed=5, xfailed=1)


def test_a_measurement_of_an_earlier_test_is_compared_in_the_later_one(project: Project) -> None:
    """A fixture of a module keeps it: a forgotten assert is that test's error, a FAIL its row."""
    project.test(
        "@pytest.fixture(scope='module')\ndef kept():\n    return []\n"
        f"{F16}def test_0(throughput, kept):\n    kept.append(throughput('tg8'))\n"
        "    assert kept[0] >= 1\n"
        "def test_1(kept):\n    kept[0] >= 1e9\n"
        "def test_2(kept):\n    assert kept[0] >= 1e9\n"
        "def test_3(kept):\n    try:\n        assert kept[0] >= 1e9\n"
        "    except AssertionError:\n        pytest.skip('slow')\n"
    )
    result = project.run("-vv", "--asperf-report=json:r.json")
    result.assert_outcomes(passed=1, failed=3)
    text = result.stdout.str()
    assert "test_1 compared and did not assert: " in text
    assert "test_3 caught the FAIL of: " in text
    rows = json.loads((project.path / "r.json").read_text())["assertions"]
    assert [row["test"].rpartition("::")[2] for row in rows] == [f"test_{n}" for n in range(4)]


@pytest.mark.parametrize("args", [(), ("--asperf-inconclusive=xfail",)])
def test_a_forgotten_assert_is_an_error(project: Project, args: tuple[str, ...]) -> None:
    """A comparison whose verdict nothing reads fails its test, and the error names it."""
    project.test(one_test_each(FORGOTTEN))
    result = project.run("-v", *args)
    result.assert_outcomes(failed=len(FORGOTTEN))
    found = Counter(
        line.partition("compared and did not assert: ")[2]
        for line in result.outlines
        if "compared and did not assert: " in line and not line.startswith("FAILED")
    )
    assert found == Counter(FORGOTTEN.values())


def test_an_undecided_assertion_hides_no_forgotten_one(project: Project) -> None:
    """Even if an open question fails nothing, a missing assertion does."""
    project.test(
        f"@pytest.mark.quant('Q8_0')\ndef test_it(perplexity):\n    {UNDECIDED}\n"
        "    perplexity.delta < '1%'\n"
    )
    result = project.run("--asperf-inconclusive=xfail")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*compared and did not assert: *below 1 %"])


def test_a_comparison_in_a_tear_down_must_be_asserted_too(project: Project) -> None:
    """A fixture may judge after its test; a forgotten verdict is an error of the tear-down."""
    project.test(
        "@pytest.fixture\ndef judged(throughput):\n    yield\n    throughput('tg8') >= 1\n"
        f"{F16}def test_it(judged):\n    pass\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*compared and did not assert: tg8 fake:F16 at least 1 tok/s"])


def test_memory_and_speculation_are_asserted_too(live: Project) -> None:
    """Measured on the real engine: a comparison passes, a quantity by itself is red."""
    live.config(engine="llama_cpp", default_model="asperf-draft:F16", max_seconds=5, max_pairs=5)
    prompts = {"code": [f"def area_{n}(width, height):\n    return" for n in range(5)]}
    (live.path / "prompts.json").write_text(json.dumps(prompts))
    pair = (
        '@pytest.mark.speculative(draft="ngram", target="asperf-draft:F16", k=2, n_tokens=8, '
        'prompts="prompts.json")\n'
    )
    live.test(
        "def test_0(memory):\n    memory(64)\n"
        "def test_1(memory):\n    assert memory(64).kv >= '1 KiB'\n"
        f"{pair}def test_2(speculation):\n    speculation.acceptance\n"
        f"{pair}def test_3(speculation):\n    assert speculation.acceptance <= '100%'\n"
        f"{pair}def test_4(speculation):\n    assert speculation.result.pairs\n"
    )
    result = live.run()
    result.stdout.fnmatch_lines(["test_it.py F.F..*", "*measured memory of * at 64 tokens and *"])


def test_a_test_that_failed_anyway_says_only_why(project: Project) -> None:
    """The first error is the one to mend."""
    project.test(
        one_test_each(['throughput("tg8"); assert not "mine"', 'throughput("tg8") >= 1; 1/0'])
    )
    result = project.run()
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*asserted nothing*")
    result.stdout.no_fnmatch_line("*did not assert*")


#: By a truth value: the comparison to write instead. `tests/api` has every kind.
TRUTHS = {
    "throughput('tg8')": 'assert throughput("tg128") >= "40 tok/s"',
    "throughput": 'assert throughput("tg128") >= "40 tok/s"',
    "not latency('ttft64') / latency('ttft8')": 'assert throughput("tg128") >= "40 tok/s"',
    "not memory": 'assert memory(4096) <= "8 GiB"',
    "model.scores('some text')": "assert model.scores(text, n_ubatch=1).agrees",
    "speculation.gain": 'assert throughput("tg128") >= "40 tok/s"',
    "gate.candidate": "assert gate.candidate.throughput(",
}


def test_a_measurement_is_no_truth_value(project: Project) -> None:
    """`assert throughput("tg16")` passes for any measurement: the error shows a comparison."""
    fixtures = {value: re.sub(r"\W.*", "", value.removeprefix("not ")) for value in TRUTHS}
    project.test(
        "\n".join(
            f"{SPECULATIVE if fixture == 'speculation' else F16}def test_{n}({fixture}):\n"
            f"    assert {value}\n"
            for n, (value, fixture) in enumerate(fixtures.items())
        )
    )
    result = project.run("-vv", *GATED)
    result.assert_outcomes(failed=len(TRUTHS))
    text = result.stdout.str()
    assert text.count("is used as a truth value") >= len(TRUTHS)
    for example in TRUTHS.values():
        assert f"compare it with a limit, as in {example}" in text


#: By an assertion on a verdict's outcome: the outcome in its error.
OUTCOMES = {
    "assert (throughput('tg8') >= 1e9).outcome": "FAIL",
    "assert (throughput('tg8') >= 1).outcome": "PASS",
    "assert all(one.outcome for one in [throughput('tg8') >= 1e9])": "FAIL",
    "assert not (throughput('tg8') >= 1).outcome": "PASS",
    "assert throughput('tg8') >= 1 and (throughput('tg8') >= 1e9).outcome": "FAIL",
}


def test_an_outcome_is_no_truth_value(project: Project) -> None:
    """A word is true whichever it is: the error shows the verdict, or a comparison."""
    told = {
        f"{F16}def test_it(throughput):\n    {body}\n": f"the outcome {word} is used as a truth"
        for body, word in OUTCOMES.items()
    }
    project.rejects("{}", told)
    assert 'write `assert verdict`, or `assert verdict.outcome == "PASS"`' in (
        project.run("-vv").stdout.str()
    )


#: By an assertion on a fixture that was not called: its error.
UNCALLED = {
    "assert throughput >= '1 tok/s'": 'assert throughput("tg128")',
    "assert 1 <= latency <= '9 s'": 'assert latency("ttft512")',
    "assert energy <= '9 J/token'": 'assert energy("tg128")',
    "assert memory < '9 GiB'": "assert memory(4096)",
    "assert perplexity < '1%'": 'assert perplexity.delta < "1%"',
    "assert ladder > 1": 'assert ladder["Q8_0"].delta',
    "assert speculation >= 1": "assert_sd_gain(speculation",
    "assert_fits(memory, hardware)": "assert_fits(memory(4096), hardware)",
    "assert_monotonic([throughput, throughput])": "assert_monotonic([throughput(",
    "assert_monotonic(throughput)": "assert_monotonic([throughput(",
    "assert_no_regression(gate)": 'assert_no_regression(gate("tg128"',
    "assert_lossless(speculation.on)": "assert_lossless(speculation)",
    "assert_ppl_delta(ladder, below='1%')": 'assert_ppl_delta(ladder["Q8_0"], below="1%")',
    "assert_pareto_optimal(perplexity, 'Q8_0')": "assert_pareto_optimal(ladder",
}


def test_an_assertion_refuses_a_fixture_that_was_not_called(project: Project) -> None:
    """The error shows the call, or the quantity, that is to be compared."""
    known = ("throughput", "latency", "energy", "memory", "speculation", "gate", "ladder")
    lines = []
    for n, assertion in enumerate(UNCALLED):
        taken = [name for name in (*known, "hardware", "perplexity") if name in assertion]
        marks = SPECULATIVE if "speculation" in taken else LADDER if "ladder" in taken else F16
        marks = Q8 if "perplexity" in taken else marks
        lines.append(f"{marks}def test_{n:02}({', '.join(taken)}):\n    {assertion}\n")
    project.test("\n".join(lines))
    result = project.run("-vv", *GATED)
    result.assert_outcomes(failed=len(UNCALLED))
    text = result.stdout.str()
    for shown in UNCALLED.values():
        assert f"what to do:     write {shown}" in text or f"as in {shown}" in text, shown


#: By a test that never uses its fixture: the fixture's name.
NEVER_USED = {
    f"{F16}def test_it(throughput):\n    pass\n": "throughput",
    f"{F16}def test_it(latency):\n    assert latency is not None\n": "latency",
    f"{F16}def test_it(energy):\n    assert callable(energy)\n": "energy",
    f"{F16}def test_it(memory, hardware):\n    assert hardware\n": "memory",
    f"{F16}def test_it(gate):\n    def fast():\n        assert gate('tg8')\n    assert fast\n": (
        "gate"
    ),
    f"{F16}def test_it(gate):\n    gate.candidate\n": "gate",
    f"{Q8}def test_it(perplexity):\n    pass\n": "perplexity",
    f"{Q8}def test_it(perplexity):\n    assert perplexity.name\n": "perplexity",
    f"{LADDER}def test_it(ladder):\n    pass\n": "ladder",
    f"{LADDER}def test_it(ladder):\n    for quant in ladder.quants:\n        ladder[quant]\n": (
        "ladder"
    ),
    f"{SPECULATIVE}def test_it(speculation):\n    pass\n": "speculation",
    f"{SPECULATIVE}def test_it(speculation):\n    speculation.on('def area(')\n": "speculation",
    # Without the fixture's own name in the test's signature.
    f"{F16}@pytest.mark.usefixtures('throughput')\ndef test_it():\n    pass\n": "throughput",
    f"{F16}def test_it(request):\n    request.getfixturevalue('latency')\n": "a fixture",
    f"@pytest.fixture\ndef q8(ladder):\n    return ladder['Q8_0']\n{LADDER}"
    "def test_it(q8):\n    pass\n": "q8",
}
USED = [
    F16 + "def test_it(model):\n    assert model.quant == 'F16'\n",
    "@pytest.fixture\ndef q8(ladder):\n    return ladder['Q8_0']\n"
    + LADDER
    + "def test_it(q8):\n    assert q8.ppl > 1\n",
    LADDER + "def test_it(ladder, throughput):\n    for quant in ladder.quants:\n"
    "        assert throughput('tg8', quant=quant) >= 1\n",
    "@pytest.fixture\ndef after(throughput):\n    yield\n    assert throughput('tg8') >= 1\n"
    + F16
    + "def test_it(after):\n    pass\n",
    F16 + "def test_it(throughput, latency):\n    assert throughput('tg8') >= 1\n",
    F16 + "def test_it(model):\n    assert model.scores('some text').nll\n",
    F16 + "def test_it(request):\n    assert request.getfixturevalue('model').name\n",
]


def test_a_fixture_that_is_never_used_is_an_error(project: Project) -> None:
    """Its test measures nothing; the error names the fixture, and an assertion."""
    told = {source: f"has {name} and never uses it" for source, name in NEVER_USED.items()}
    caught = "    with pytest.raises(Exception):\n        assert "
    told |= {
        f"{Q8}def test_it(perplexity):\n{caught}perplexity\n": (
            "has perplexity and only caught: <Quant fake:Q8_0 vs F16> is used as a truth value"
        ),
        f"{F16}def test_it(throughput):\n{caught}throughput('tg-8') >= 1\n": (
            "has throughput and only caught: throughput: 'tg-8' is not a workload"
        ),
    }
    project.rejects("{}", told, *GATED)


def test_a_fixture_that_is_used_is_none(project: Project) -> None:
    """Names, a quantization that a fixture returns, and an assertion of a tear-down are uses."""
    assert set(project.judged("{}", USED)) == {"."}


def test_a_broken_measurement_that_is_caught_is_no_assertion(project: Project) -> None:
    """A number that was never read is not asserted, whatever the test does with the error."""
    project.script("q8", faults={"generate": "crash"})
    body = "try:\n        throughput('tg8').estimate\n    except Exception:\n        pass"
    told = {f"{Q8}def test_it(throughput):\n    {body}\n": "measured tg8 fake:Q8_0 and asserted"}
    project.rejects("{}", told)


PASSES = 'assert_ppl_delta(perplexity, below="50%")'
FAILS = 'assert_ppl_delta(perplexity, below="-50%")'
#: By a test's content: the letter of its outcome with xfail, and with skip.
ENDS = {
    FAILS: "FF",
    "throughput('tg8').estimate": "VV",
    f"{UNDECIDED}; {PASSES}": "xs",
    f"{PASSES}; {UNDECIDED}; {UNDECIDED}": "xs",
    f"{UNDECIDED}; {FAILS}": "FF",
    f"{FAILS}; {UNDECIDED}": "FF",
    f"{UNDECIDED}; throughput('tg8').estimate": "VV",
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
    """An assertion in a project's own fixture is not the end of its test."""
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
    """An undecided assertion of one run is not carried into the next."""
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
        f"{Q8}def test_0(checked, perplexity):\n    assert perplexity.ppl > 1\n"
        f"{Q8}def test_1(checked):\n    pass\n"
    )
    project.run("--asperf-inconclusive=skip").assert_outcomes(passed=2, skipped=2)


def test_a_unittest_case_hides_no_failure(project: Project) -> None:
    """Its own failure is reported, after any undecided verdict."""
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
            "    throughput('pp64').estimate\n"
            f"    assert throughput('tg8') >= {n}\n"
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
    """A note names both numbers: a figure at 64 threads on 2 cores is not the model's."""
    live.config(engine="llama_cpp", default_model="asperf-draft:F16", max_cv="1000%")
    source = "def test_it(throughput):\n    assert throughput('tg1') >= 1e-9\n"
    live.test(source)
    assert "wait for one another" not in live.run().stdout.str()
    live.test(f"@pytest.mark.model('asperf-draft', threads=512)\n{source}")
    live.run("--asperf-report=json:out.json").stdout.fnmatch_lines(
        ["note: *512 threads on * cores: they wait for one another*"]
    )
    assert "512 threads on" in (live.path / "out.json").read_text()
