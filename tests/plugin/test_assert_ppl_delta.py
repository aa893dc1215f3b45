from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

#: Q8_0 of the project is shown within 1 % of F16, and Q4_K_M shown 1 to 10 % worse.
CLAIM = """
@pytest.mark.quant("{level}")
def test_it(perplexity):
    assert_ppl_delta(perplexity, {claim})
"""


_CLAIMS = [
    ("Q8_0", 'below="1%"', "."),
    ("Q8_0", "below=0.01", "."),
    ("Q8_0", 'above="-1%"', "."),
    ("Q8_0", 'above="1%"', "F"),
    ("Q4_K_M", 'below="1 %"', "F"),
    ("Q4_K_M", 'above="1%"', "."),
    ("Q4_K_M", "above=0.5", "F"),
    ("Q4_K_M", "below=perplexity.delta_ppl.high", "I"),
    ("Q4_K_M", "above=perplexity.delta_ppl.point", "I"),
]


def test_the_interval_decides(project: Project) -> None:
    """Shown on the claimed side passes, shown on the other fails, anything else is open."""
    sources = [CLAIM.format(level=level, claim=claim) for level, claim, _ in _CLAIMS]
    assert project.letters(sources) == "".join(row[-1] for row in _CLAIMS)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("", "needs exactly one of below and above"),
        ('below="1%", above="0%"', "needs exactly one of below and above"),
        ('below="1"', "below: '1' is not a usable limit"),
        ('below="1 percent"', "is not a usable limit"),
        ("below=True", "is not a usable limit"),
        ("below=float('nan')", "is not a usable limit"),
        ('above="inf%"', "above: "),
    ],
)
def test_a_limit_that_is_none_is_an_error(project: Project, claim: str, told: str) -> None:
    """A claim without a usable limit is refused at the test's own line."""
    project.test(CLAIM.format(level="Q8_0", claim=claim))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  what to do: *", "test_it.py:6: ConfigError"])
    assert told in result.stdout.str()
