"""`assert_improvement`: the candidate build is claimed to be faster, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

TEST = '@pytest.mark.quant("{level}")\ndef test_it(gate):\n    assert_improvement(gate({claim}\n'
#: The baseline takes 1.2 times the candidate's time.
_CLAIMS = [
    ("F16", '"tg32", "logits"))', "."),
    ("F16", '"tg32"), faster_by="40%")', "F"),
    ("F16", '"tg32"), faster_by="20%")', "I"),
    ("Q8_0", '"tg32"), faster_by="10%")', "V"),
]


def test_a_gain_against_its_limit(project: Project) -> None:
    """The whole interval decides, on every workload; a crash of both builds is no measurement."""
    steps = [1_000_000, 1_010_000, 995_000, 1_004_000, 990_000, 1_007_000, 1_001_000]
    project.script("f16", tg_ns_per_token=steps)
    project.script("q8", faults={"generate": "crash"})
    sources = [TEST.format(level=level, claim=claim) for level, claim, _ in _CLAIMS]
    builds = ("--asperf-baseline=slow_by=0.2", "--asperf-candidate=current")
    letters = project.letters(sources, *builds, "--asperf-seed=1", "--asperf-max-pairs=8")
    assert letters == "".join(letter for *_, letter in _CLAIMS)


def test_equal_builds_are_no_gain(project: Project) -> None:
    """A FAIL says what was measured, and a share that is none is refused."""
    project.test(
        TEST.format(level="F16", claim='"tg32"), faster_by="5%")')
        + 'def test_typo(gate):\n    assert_improvement(gate("tg32"), faster_by="-5%")\n'
    )
    result = project.run("--asperf-candidate=current", "--asperf-seed=1", "-v")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "E *claim: *tg32 fake:F16 in current / * faster by 5 % or more (0.952x the time)",
            "E *measured: *x [[]0.9*, 1.0*]",
            "assert_improvement: faster_by: '-5%' is not a usable limit",
        ]
    )
