"""A share that is written as a number from 1 on is an error in each public assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

_F16 = '@pytest.mark.quant("F16")\n'
_LADDER = '@pytest.mark.quant_ladder("Q8_0")\n'
#: By the argument: the test before its claim, and the claim.
_CLAIMS = {
    "tolerance": ("def test_it(gate):\n", 'assert_no_regression(gate("tg8"), tolerance={})'),
    "ppl_below": ("def test_it(gate):\n", 'assert_no_regression(gate("ppl"), ppl_below={})'),
    "faster_by": ("def test_it(gate):\n", 'assert_improvement(gate("tg8"), faster_by={})'),
    "below": (_LADDER + "def test_it(perplexity):\n", "assert_ppl_delta(perplexity, below={})"),
    "above": (_LADDER + "def test_it(perplexity):\n", "assert_ppl_delta(perplexity, above={})"),
    "within": (
        _LADDER + "def test_it(ladder):\n",
        'assert_equivalent(ladder, "Q8_0", "F16", within={})',
    ),
    "cv_below": (
        _F16 + "def test_it(throughput):\n",
        'assert_steady(throughput("tg8"), cv_below={})',
    ),
    "at_most": (
        _F16 + "def test_it(latency):\n",
        'assert_figure(latency("pp8+tg8").prefill_share, at_most={})',
    ),
}


@pytest.mark.parametrize("name", list(_CLAIMS))
def test_a_number_without_a_unit_is_refused(project: Project, name: str) -> None:
    """The message names the argument and offers percent and the fraction; nothing passes."""
    head, claim = _CLAIMS[name]
    project.test(f"{head}    {claim.format(5)}\n")
    result = project.run("--asperf-candidate=current", "--asperf-max-pairs=5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"*{name}: 5 is not a usable limit: it has no unit", '*write "5%" or 0.05;*"500%"']
    )


@pytest.mark.parametrize(("limit", "letter"), [('"5%"', "."), ("0.05", "."), ('"500%"', ".")])
def test_what_is_offered_is_accepted(project: Project, limit: str, letter: str) -> None:
    """A share in percent may be above 100 %, and a fraction needs no unit."""
    head, claim = _CLAIMS["below"]
    assert project.letters([f"{head}    {claim.format(limit)}\n"]) == letter


def test_an_option_takes_the_fraction_too(project: Project) -> None:
    """A message that offers 0.05 is right on the command line too."""
    project.test(f"{_F16}def test_it(gate):\n    assert_no_regression(gate('ppl'))\n")
    result = project.run("--asperf-candidate=current", "--asperf-tolerance=0.05")
    result.assert_outcomes(passed=1)
