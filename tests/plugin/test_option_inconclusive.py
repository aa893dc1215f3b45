import pytest

from tests.plugin.conftest import Project

#: The limit is the estimate itself: no interval can be above or below it.
UNDECIDED = """
@pytest.mark.quant("Q8_0")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)
"""


def test_fail_is_the_default(project: Project) -> None:
    """An undecided test fails the session, under its own letter and word."""
    project.test(UNDECIDED)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "test_it.py I *",
            "*INCONCLUSIVE test_it.py::test_it*",
            "E   do  *",
            "[?]  ΔPPL fake:Q8_0 vs F16 *",
            "1 assertion: 1 INCONCLUSIVE*",
            "* 1 inconclusive in *",
        ]
    )


def test_xfail_lets_the_session_pass(project: Project) -> None:
    """An expected open question is pytest's x, with the observation."""
    project.test(UNDECIDED)
    result = project.run("--asperf-inconclusive=xfail", "-rx")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py x *",
            "[?] test_it: too near *: set another limit",
            "1 assertion: 1 INCONCLUSIVE*",
            "XFAIL *INCONCLUSIVE: ΔPPL*",
        ]
    )


def test_skip_lets_the_session_pass(project: Project) -> None:
    """Skipped, it names the test's own line and the observation."""
    project.test(UNDECIDED)
    result = project.run("--asperf-inconclusive=skip", "-rs")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py s *",
            "1 assertion: 1 INCONCLUSIVE*",
            "SKIPPED [[]1[]] test_it.py:4: INCONCLUSIVE: ΔPPL*",
        ]
    )


def test_an_open_limit_of_a_chain_is_one_assertion(project: Project) -> None:
    """If pytest rewrites no assertion, the chain's own verdict is the test's result."""
    (project.path / "limits.py").write_text(
        "def within(low, quantity, high):\n    assert low < quantity < high\n"
    )
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(perplexity):\n    from limits import within\n'
        '    at = perplexity.delta.estimate.point\n    within(at, perplexity.delta, "90%")\n'
    )
    result = project.run("--asperf-inconclusive=xfail", "-rx")
    result.stdout.fnmatch_lines(
        [
            "[?] *ΔPPL fake:Q8_0 vs F16 * to 90 % *",
            "1 assertion: 1 INCONCLUSIVE*",
            "XFAIL *INCONCLUSIVE: ΔPPL*",
        ]
    )
