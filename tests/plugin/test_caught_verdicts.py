"""A FAIL or INVALID that a test catches is its error; one that it reads is its own business."""

import pytest

from tests.plugin.conftest import Project

Q8 = '@pytest.mark.quant("Q8_0")\n'
UNDECIDED = "assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)"
SLOW = 'assert throughput("tg8") >= 1e9'
NAMED = "caught the FAIL of: tg8 fake:Q8_0 at least 1,000,000,000 tok/s"
#: By a test that would pass: its error.
CAUGHT = {
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError:\n"
    "        pass\n": NAMED,
    "def test_it(throughput):\n    with __import__('contextlib').suppress(AssertionError):\n"
    f"        {SLOW}\n": NAMED,
    f"def test_it(throughput):\n    with pytest.raises(VerdictError):\n        {SLOW}\n": NAMED,
    "def test_it(throughput):\n    with pytest.raises(AssertionError, match='tok/s'):\n"
    f"        {SLOW}\n": NAMED,
    "def test_it(throughput):\n    def fast():\n        try:\n"
    "            return bool(throughput('tg8') >= 1e9)\n        except Exception:\n"
    "            return True\n    assert fast()\n": NAMED,
    "def test_it(throughput):\n    for limit in (1e9, 1e8, 1):\n        try:\n"
    "            assert throughput('tg8') >= limit\n            break\n"
    "        except AssertionError:\n            continue\n": NAMED,
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError:\n"
    "        pytest.skip('slow today')\n": NAMED,
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError:\n"
    "        pytest.xfail('slow today')\n": NAMED,
    f"@pytest.mark.xfail\ndef test_it(throughput):\n    try:\n        {SLOW}\n"
    "    except AssertionError:\n        pass\n": NAMED,
    "def test_it(gate):\n    try:\n        assert_no_regression(gate('tg8'), faster_by='50%')\n"
    "    except AssertionError:\n        pass\n": "caught the FAIL of: tg8",
    f"def test_it(perplexity):\n    try:\n        {UNDECIDED}\n"
    "    except AssertionError:\n        pass\n": "caught the INCONCLUSIVE of: ΔPPL",
}
#: Tests that are left after a FAIL that they read, and one after an open question.
LEFT = {
    f"def test_it(throughput):\n    if (throughput('tg8') >= 1e9).outcome == 'FAIL':\n"
    f"        pytest.{how}('slow today')\n": "was left after the FAIL of: tg8 fake:Q8_0"
    for how in ("skip", "xfail")
} | {
    "def test_it(throughput, request):\n    verdict = throughput('tg8') >= 1e9\n"
    "    if verdict.outcome == 'FAIL':\n        request.applymarker(pytest.mark.xfail)\n"
    "    assert verdict\n": "was left after the FAIL of: tg8 fake:Q8_0",
    f"def test_it(throughput, request):\n    try:\n        {SLOW}\n    except AssertionError:\n"
    "        request.node.add_marker(pytest.mark.xfail)\n        raise\n": (
        "was left after the FAIL of: tg8 fake:Q8_0"
    ),
}
OPEN = (
    "def test_it(perplexity):\n    verdict = perplexity.delta < perplexity.delta.estimate.point\n"
    "    if verdict.outcome == 'INCONCLUSIVE':\n        pytest.skip('noise')\n"
)
#: Tests that look at a verdict, or end with it: the letter of each.
SEEN = {
    "def test_it(throughput):\n    verdict = throughput('tg8') >= 1e9\n"
    "    assert verdict.outcome == 'FAIL'\n": ".",
    f"def test_it(throughput):\n    with pytest.raises(VerdictError) as caught:\n        {SLOW}\n"
    "    assert caught.value.verdict.outcome is Outcome.FAIL\n": ".",
    "def test_it(gate):\n    with pytest.raises(VerdictError) as caught:\n"
    "        assert_no_regression(gate('tg8'), faster_by='50%')\n"
    "    assert caught.value.verdict.outcome == 'FAIL'\n": ".",
    "def test_it(throughput):\n    verdict = throughput('tg8') >= 1e9\n"
    "    try:\n        assert verdict\n    except AssertionError:\n"
    "        assert verdict.outcome != 'INVALID'\n": ".",
    f"@pytest.mark.xfail(strict=True)\ndef test_it(throughput):\n    {SLOW}\n": "x",
    "def test_it(throughput, request):\n    request.applymarker(pytest.mark.xfail)\n"
    f"    {SLOW}\n": "x",
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError as error:\n"
    "        raise RuntimeError('slow') from error\n": "F",
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError as error:\n"
    "        raise ExceptionGroup('slow', [ValueError(), error])\n": "F",
    f"def test_it(throughput):\n    try:\n        {SLOW}\n    except AssertionError:\n"
    "        pass\n    assert not 'mine'\n": "F",
}


def test_a_caught_verdict_is_an_error_of_its_test(project: Project) -> None:
    """The error names the assertion and how to look at a verdict, with each way to catch it."""
    project.rejects("{}", {Q8 + source: told for source, told in CAUGHT.items()}, *GATED)
    assert 'verdict.outcome == "FAIL"' in project.run(*GATED, "-vv").stdout.str()


def test_a_skip_hides_no_verdict_that_was_read(project: Project) -> None:
    """A FAIL that a test looks at before it skips, or xfails, its rest is an error of the test."""
    project.rejects("{}", {Q8 + source: told for source, told in LEFT.items()})
    assert project.judged("{}", [Q8 + OPEN]) == "s"


GATED = ("--asperf-candidate=current", "--asperf-baseline=current", "--asperf-max-pairs=30")


def test_a_verdict_that_is_read_or_ends_its_test_is_not_caught(project: Project) -> None:
    """An outcome that a test compares is legal, and a failure keeps its own report."""
    assert project.judged("{}", [Q8 + source for source in SEEN], *GATED) == "".join(SEEN.values())
    assert "caught the" not in project.run(*GATED).stdout.str()


def test_a_caught_failure_shows_behind_an_undecided_assertion(project: Project) -> None:
    """An INCONCLUSIVE that fails nothing hides no FAIL that was caught before it."""
    project.test(
        f"{Q8}def test_it(throughput, perplexity):\n    try:\n        {SLOW}\n"
        f"    except AssertionError:\n        pass\n    {UNDECIDED}\n"
    )
    result = project.run("--asperf-inconclusive=xfail")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{NAMED}*"])


def test_a_fixture_that_catches_is_an_error_of_its_phase(project: Project) -> None:
    """In the set-up and in the tear-down, with the row and the exit code of a failure."""
    project.test(
        "def slow(throughput):\n    try:\n"
        f"        {SLOW}\n    except AssertionError:\n        pass\n"
        "@pytest.fixture\ndef before(throughput):\n    slow(throughput)\n"
        "@pytest.fixture\ndef after(throughput):\n    yield\n    slow(throughput)\n"
        f"{Q8}def test_0(before):\n    pass\n{Q8}def test_1(after):\n    pass\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_subtest_reports_its_verdict(project: Project) -> None:
    """A FAIL in a subtest is that subtest's failure, and no verdict that was caught."""
    project.test(
        f"{Q8}def test_it(throughput, subtests):\n    for limit in (1, 1e9):\n"
        "        with subtests.test(limit=limit):\n"
        "            assert throughput('tg8') >= limit\n"
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*SUBFAILED*tg8 fake:Q8_0 at least 1,000,000,000 tok/s*"])
    assert "caught the" not in result.stdout.str()


def test_a_soft_assertion_keeps_the_report_of_its_plugin(project: Project) -> None:
    """A plugin that collects failures and fails the test at its end keeps its report."""
    project.pytester.makeconftest(
        "import pytest\nfound = []\n"
        "@pytest.hookimpl(wrapper=True, trylast=True)\n"
        "def pytest_runtest_makereport(item, call):\n    report = yield\n"
        "    if found and call.when == 'call':\n"
        "        report.outcome, report.longrepr = 'failed', f'collected {found.pop()}'\n"
        "    return report\n"
        "class Soft:\n    def __enter__(self):\n        pass\n"
        "    def __exit__(self, kind, error, trace):\n"
        "        found.extend([kind.__name__] if kind else [])\n        return True\n"
        "@pytest.fixture\ndef check():\n    return Soft()\n"
    )
    project.test(f"{Q8}def test_it(throughput, check):\n    with check:\n        {SLOW}\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["collected VerdictError"])
    assert "caught the" not in result.stdout.str()


def test_a_rerun_does_not_hide_a_caught_verdict(project: Project) -> None:
    """Each run of the test has its own error, and the last one counts."""
    plugin = project.with_plugin("rerunfailures")
    plugin.test(
        f"{Q8}def test_it(throughput):\n    with pytest.raises(AssertionError):\n        {SLOW}\n"
    )
    result = plugin.run("--reruns=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{NAMED}*"])


#: Ways to catch the error of a rate above the roofline.
INVALID = "caught that a measurement is INVALID: tg8 fake:F16: roofline-high"
CAUGHT_INVALID = (
    "try:\n        assert rate >= 1\n    except MeasurementError:\n        pass\n",
    "try:\n        rate.estimate\n    except Exception:\n        pass\n",
    "with __import__('contextlib').suppress(MeasurementError):\n        assert rate >= 1\n",
    "with pytest.raises(MeasurementError, match='roofline'):\n        assert rate >= 1\n",
    "try:\n        assert rate >= 1\n    except MeasurementError:\n        pytest.skip('today')\n",
    "with pytest.raises(MeasurementError):\n        assert_monotonic([rate, rate])\n",
)
#: Tests that an INVALID ends, or that catch another error: the letter of each.
SEEN_INVALID = {
    "@pytest.mark.xfail(raises=MeasurementError, strict=True)\n"
    "def test_it(throughput):\n    assert throughput('tg8') >= 1\n": "x",
    "def test_it(throughput):\n    try:\n        assert throughput('tg8') >= 1\n"
    "    except MeasurementError as error:\n        raise RuntimeError('fast') from error\n": "F",
    "def test_it(throughput):\n    with pytest.raises(ConfigError):\n"
    "        assert throughput('tg8', quant='Q9') >= 1\n"
    "    assert throughput('pp8') >= 1\n": ".",
}
ON_M1 = ("--asperf-hardware=m1", "--asperf-source=live")
F16 = '@pytest.mark.quant("F16")\n'


def test_a_caught_broken_measurement_is_an_error_of_its_test(project: Project) -> None:
    """Each way to catch it, in tests that share the measurement; the error names an xfail."""
    project.script("f16", bytes_per_token=11 * 10**9)
    head = f"{F16}def test_it(throughput):\n    rate = throughput('tg8')\n"
    head += "    assert throughput('pp8') >= 1\n    {}"
    project.rejects(head, dict.fromkeys(CAUGHT_INVALID, INVALID), *ON_M1)
    project.run(*ON_M1).stdout.fnmatch_lines(["*xfail(raises=MeasurementError, strict=True)*"])


def test_a_broken_measurement_that_ends_its_test_is_not_caught(project: Project) -> None:
    """An expected one, one that is another error's cause, and the error of a bad name."""
    project.script("f16", bytes_per_token=11 * 10**9)
    tests = [F16 + source for source in SEEN_INVALID]
    assert project.judged("{}", tests, *ON_M1) == "".join(SEEN_INVALID.values())
    assert "caught that" not in project.run(*ON_M1).stdout.str()
