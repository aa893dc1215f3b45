"""`assert_figure`: limits of quantities that have no assertion of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

LADDER = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    {}\n'
OF_F16 = (
    '@pytest.mark.quant("F16")\ndef test_it(latency):\n    request = latency("pp512+tg64"); {}\n'
)
#: Q4_K_M is 1.43 times as fast as F16, of six times its bytes, and loses 2.4 % of PPL.
_CLAIMS = [
    (OF_F16.format('assert_figure(request.prefill_share, at_most="10%")'), "."),
    (OF_F16.format("assert_figure(request.prefill_share, at_least=0.1)"), "F"),
    (OF_F16.format("assert_figure(request.effective_rate, at_least=900, at_most=950)"), "."),
    (LADDER.format('assert_figure(ladder.efficiency("Q4_K_M", "tg8"), at_most=5)'), "."),
    (LADDER.format('assert_figure(ladder.efficiency("Q4_K_M", "tg8"), at_least=5)'), "F"),
    # Not one of six chunks shows a loss: there is no upper bound, or nothing to divide by.
    (LADDER.format('assert_figure(ladder.efficiency("Q8_0", "tg8"), at_least=1e5)'), "V"),
    (
        LADDER.format(
            'r = ladder.size("F16") / ladder.size("Q4_K_M"); '
            'assert_ratio(ladder, "Q4_K_M", "F16", "tg8", at_least=8 * r, at_most=9.5 * r)'
        ),
        ".",
    ),
    (LADDER.format('assert_figure(ladder["Q4_K_M"].kld, at_most=1)'), "F"),
    (OF_F16.format('assert_figure(request.effective_rate, at_least="5 tok/s")'), "F"),
    (OF_F16.format("assert_figure(request.effective_rate)"), "F"),
]


def test_a_figure_against_its_limits(project: Project) -> None:
    """The whole interval decides, in the figure's own unit; what is no figure is refused."""
    letters = project.letters([source for source, _ in _CLAIMS], "--asperf-repetitions=8")
    assert letters == "".join(letter for _, letter in _CLAIMS)


SPECULATION = """
@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", k=2, n_tokens=8,
                         prompts="prompts.json")
def test_{}(speculation):
    {}
"""
_OF_SPECULATION = {
    "assert_figure(speculation.accepted(), at_least=0.02)": "✓ * acceptance by * ≥ 2 %*",
    'assert_figure(speculation.accepted("code"), at_least="99.9%")': "* acceptance of code by *",
    'assert_figure(speculation.accepted("text"), at_least=0.1)': "[?] *of text by *",
    "assert_figure(speculation.verify_cost(3), at_most=30)": "✓ *C(3) of * ≤ 30*",
    'speculation.accepted("cod")': "unknown category 'cod'; did you mean 'code'[?]",
    "speculation.verify_cost(99)": "verify_cost: 99 positions were not timed",
}


def test_acceptance_and_the_cost_of_a_batch(live: Project) -> None:
    """Acceptance has an interval over prompts, of which five are needed; C(n) one over pairs."""
    prompts = {
        "code": [f"def area_{n}(width, height):\n    return" for n in range(6)],
        "text": ["# The area is the product of"],
    }
    (live.path / "prompts.json").write_text(json.dumps(prompts))
    live.test("".join(SPECULATION.format(n, body) for n, body in enumerate(_OF_SPECULATION)))
    result = live.run("--asperf-max-pairs=5", "--asperf-seed=3")
    for told in _OF_SPECULATION.values():
        result.stdout.fnmatch_lines([told if told[0] in "*PI" else f"{told}*"])
