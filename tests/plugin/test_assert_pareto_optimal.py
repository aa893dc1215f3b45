from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

#: Q4_K_M is smaller and generates faster; Q8_0 has the lower PPL and KLD.
CLAIM = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert_pareto_optimal(ladder, {claim})
"""


_OBJECTIVES = [
    ('"Q8_0"', "."),
    ('"Q4_K_M"', "."),
    ('"Q8_0", ["size"]', "F"),
    ('"Q8_0", ["tg8"]', "F"),
    ('"Q8_0", ["size", "tg8"]', "F"),
    ('"Q8_0", ["ppl"]', "."),
    ('"Q4_K_M", ["ppl"]', "F"),
    ('"Q4_K_M", ["kld"]', "F"),
    ('"Q4_K_M", ["kld", "size"]', "."),
    ('"Q8_0", ["pp16"]', "I"),
]


def test_each_objective_counts(project: Project) -> None:
    """Worse somewhere is on the front; as good everywhere and better once is off it."""
    sources = [CLAIM.format(claim=claim) for claim, _ in _OBJECTIVES]
    assert project.letters(sources, "--asperf-repetitions=8") == "".join(
        row[-1] for row in _OBJECTIVES
    )


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ('"Q6_K"', "the ladder has no level 'Q6_K'"),
        ('"Q8_0", ["sise"]', "unknown quantity 'sise'; did you mean 'size'?"),
        ('"Q8_0", []', "no objective to compare levels by"),
    ],
)
def test_nonsense_is_an_error(project: Project, claim: str, told: str) -> None:
    """What cannot be compared is refused at the test's own line."""
    project.test(CLAIM.format(claim=claim))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{told}*", "  what to do: *", "test_it.py:6: ConfigError"])
