"""A share that is written as a number from 1 on is an error in each assertion."""

from tests.plugin.conftest import Project

_F16 = '@pytest.mark.quant("F16")\n'
_LADDER = '@pytest.mark.quant_ladder("Q8_0")\n'
#: By the name in the error: the test before its assertion, and the assertion.
_CLAIMS = {
    "tolerance": ("def test_it(gate):\n", 'assert_no_regression(gate("tg8"), tolerance={})'),
    "ppl_below": ("def test_it(gate):\n", 'assert_no_regression(gate("ppl"), ppl_below={})'),
    "faster_by": ("def test_it(gate):\n", 'assert_no_regression(gate("tg8"), faster_by={})'),
    "fake:Q8_0 vs F16 < 5": (
        _LADDER + "def test_it(perplexity):\n",
        "assert_ppl_delta(perplexity, below={})",
    ),
    "fake:Q8_0 vs F16 > 5": (
        _LADDER + "def test_it(perplexity):\n",
        "assert_ppl_delta(perplexity, above={})",
    ),
    "CV of tg8 fake:F16 < 5": (
        _F16 + "def test_it(throughput):\n",
        'assert throughput("tg8").cv < {}',
    ),
    "share of prefill in pp8+tg8 fake:F16 <= 5": (
        _F16 + "def test_it(latency):\n",
        'assert latency("pp8+tg8").prefill_share <= {}',
    ),
}


def test_a_number_without_a_unit_is_refused(project: Project) -> None:
    """The message names the argument, or the comparison, and offers percent and the fraction."""
    offer = "5 is not a usable limit: it has no unit"
    messages = {
        f"{head}    {claim.format(5)}\n": f"{named}: {offer}"
        for named, (head, claim) in _CLAIMS.items()
    }
    project.rejects("{}", messages, "--asperf-candidate=current", "--asperf-max-pairs=5")


def test_what_is_offered_is_accepted(project: Project) -> None:
    """A share in percent may be above 100 %, and a fraction needs no unit."""
    head, claim = _CLAIMS["fake:Q8_0 vs F16 < 5"]
    assert (
        project.judged(head, [f"    {claim.format(x)}" for x in ('"5%"', 0.05, '"500%"')]) == "..."
    )


def test_an_option_takes_the_fraction_too(project: Project) -> None:
    """A message that offers 0.05 is right on the command line too."""
    project.test(f"{_F16}def test_it(gate):\n    assert_no_regression(gate('ppl'))\n")
    result = project.run("--asperf-candidate=current", "--asperf-tolerance=0.05")
    result.assert_outcomes(passed=1)
