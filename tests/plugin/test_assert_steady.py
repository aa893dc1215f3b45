"""`assert_steady` and `assert_steadier`: how much runs vary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

TEST = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    {}\n'
BOTH = 'q8, q4 = ladder.readings("tg8").values(); '
#: Runs vary by 0.6 % at Q8_0 and by 6 % at Q4_K_M.
_STEPS = (-6, 5, 0, -8, 9, 2, -3, 7, -5, 1)
_CLAIMS = [
    (BOTH + 'assert_steady(q8, cv_below="2%")', "."),
    (BOTH + "assert_steady(q4, cv_below=0.01)", "F"),
    (BOTH + 'assert_steady(q8, cv_below="0.6%")', "I"),
    (BOTH + "assert_steadier(q8, than=q4)", "."),
    (BOTH + "assert_steadier(q4, than=q8)", "F"),
    (BOTH + "assert_steadier(q8, than=q8)", "I"),
    ('assert_steady(ladder.readings("pp16")["Q8_0"], cv_below="1%")', "V"),
    ('assert_steady("tg8", cv_below="1%")', "F"),
    (BOTH + 'assert_steady(q8, cv_below="1 tok/s")', "F"),
]


def test_a_spread_against_its_limit(project: Project) -> None:
    """The interval decides, whatever the accepted spread; runs that are all alike are none."""
    for name, scale in (("q8", 1_000), ("q4", 10_000)):
        steps = [1_000_000 + scale * step for step in _STEPS]
        project.script(name, tg_ns_per_token=steps, pp_ns_per_token=10_000)
    letters = project.letters(
        [TEST.format(claim) for claim, _ in _CLAIMS],
        *("--asperf-repetitions=10", "--asperf-max-cv=0.1%"),
    )
    assert letters == "".join(letter for _, letter in _CLAIMS)


def test_too_few_runs_are_open(project: Project) -> None:
    """With four runs of a latency there is no interval, and the note says how many are needed."""
    project.script("q8", tg_ns_per_token=[1_000_000 + step for step in _STEPS])
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(latency):\n'
        '    assert_steady(latency("tg8"), cv_below="1%")\n'
    )
    result = project.run("--asperf-repetitions=4")
    result.stdout.fnmatch_lines(["test_it.py I *", "E   do *needs 5 loads*"])
