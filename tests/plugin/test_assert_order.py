from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

CLAIM = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert_monotonic(ladder, {claim})
"""
READINGS = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    readings = ladder.readings("tg8")
    assert_monotonic({claim})
"""


_QUANTITIES = [
    ("", "."),
    ('"kld"', "."),
    ('"kld", direction="falling"', "F"),
    ('"ppl"', "."),
    ('"size", direction="falling"', "."),
    ('"size"', "F"),
    ('"tg8"', "."),
    ('"tg8", direction="falling"', "F"),
    ('"pp16"', "I"),
]


def test_a_quantity_along_a_ladder(project: Project) -> None:
    """Each step has to be shown; one that equals its neighbour is open or shown not to hold."""
    sources = [CLAIM.format(claim=claim) for claim, _ in _QUANTITIES]
    assert project.letters(sources, "--asperf-repetitions=8") == "".join(
        row[-1] for row in _QUANTITIES
    )


@pytest.mark.parametrize(
    ("claim", "letter"),
    [
        ("readings.values()", "."),
        ("list(readings.values())[::-1]", "F"),
        ('list(readings.values())[::-1], direction="falling"', "."),
    ],
)
def test_readings_in_any_order(project: Project, claim: str, letter: str) -> None:
    """Readings are claimed in the order they are given in."""
    project.test(READINGS.format(claim=claim))
    project.run("--asperf-repetitions=8").stdout.fnmatch_lines([f"test_it.py {letter} *"])


@pytest.mark.parametrize(
    ("source", "claim", "told"),
    [
        (CLAIM, '"klp"', "unknown quantity 'klp'; did you mean 'kld'?"),
        (CLAIM, '"tgx"', "'tgx' is not a workload"),
        (CLAIM, '"kld", direction="raising"', "did you mean 'rising'?"),
        (READINGS, "[]", "nothing to compare: 0 of at least two"),
        (READINGS, '[readings["Q8_0"]]', "nothing to compare: 1 of at least two"),
    ],
)
def test_nonsense_is_an_error(project: Project, source: str, claim: str, told: str) -> None:
    """A claim that says nothing is refused at the test's own line."""
    project.test(source.format(claim=claim))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  what to do: *", "test_it.py:*: ConfigError"])
    assert told in result.stdout.str()


def test_a_ladder_of_one_is_no_order(project: Project) -> None:
    """One level cannot be monotonic."""
    project.test(CLAIM.format(claim='"kld"').replace(', "Q4_K_M"', ""))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["nothing to compare: 1 of at least two"])


def test_a_level_that_broke_makes_it_invalid(project: Project) -> None:
    """An order with a hole in it is not judged."""
    project.script("q4", faults={"score": "crash"})
    project.test(CLAIM.format(claim='"kld"'))
    project.run().stdout.fnmatch_lines(["test_it.py V *"])


def test_speed_and_size_need_no_scores_and_no_baseline(project: Project) -> None:
    """Claims that compare no scores run no PPL, so that neither F16 nor a corpus is needed."""
    for name in ("q8", "q4"):
        project.script(name, faults={"score": "crash"})
    project.config('[models.bare]\nfiles = { Q8_0 = "q8.json", Q4_K_M = "q4.json" }\n')
    claims = (
        'assert_monotonic(ladder, "tg8")',
        'assert_monotonic(ladder, "size", direction="falling")',
        'assert_pareto_optimal(ladder, "Q4_K_M", ["size", "tg8"])',
        'assert_equivalent(ladder, "Q8_0", "Q4_K_M", "size", within="100%")',
        'assert_monotonic(ladder, "kld")',
    )
    head = '@pytest.mark.model("bare")\n@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\n'
    sources = [f"{head}def test_it(ladder):\n    {claim}\n" for claim in claims]
    assert project.letters(sources, "--asperf-repetitions=8") == "....F"
