"""`assert_ratio`: by how much two levels, KV types, models, workloads or builds differ in speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

LADDER = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    '
OF_ONE = '@pytest.mark.quant("Q8_0")\ndef test_it(throughput):\n    '
SLOW = OF_ONE.replace('quant("Q8_0")', 'model("slow:F16")')
SEED = "--asperf-seed=1"
#: Q4_K_M takes 0.7 of F16's time for a token of TG, 1.02 of PP.
_CLAIMS = [
    (LADDER + 'assert_ratio(ladder, "Q4_K_M", "F16", "tg8", at_least=1.3)', "."),
    (LADDER + 'assert_ratio(ladder, "Q4_K_M", "baseline", "tg8", at_least=1.5)', "F"),
    (LADDER + 'assert_ratio(ladder, "Q4_K_M", "Q8_0", "tg8", at_least=1.2, at_most=1.4)', "."),
    (LADDER + 'assert_ratio(ladder, "Q4_K_M", "Q8_0", "tg8", at_least=1.1, at_most=1.2)', "F"),
    # A median turn at the limit decides nothing.
    (LADDER + 'assert_ratio(ladder, "F16", "F16-again", "tg8", at_least=1)', "I"),
    # The size of a script is that of its text.
    (LADDER + 'assert_ratio(ladder, "Q4_K_M", "F16", "size", at_least=3, at_most=9)', "."),
    (LADDER + 'assert_ratio(ladder, "Q8_0", "baseline", "size", at_most=0.4)', "F"),
    (LADDER + 'assert_ratio(ladder, "Q8_0", "F16", "ttft16", at_least=0.9, at_most=1.2)', "."),
    (OF_ONE + 'assert_ratio(throughput, "pp16", "tg8", at_least=80, at_most=95)', "."),
    # Timed in parts of 8 and of 33 tokens, and compared by the token.
    (SLOW + 'assert_ratio(throughput, "tg24", "tg100@d64", at_least=0.9, at_most=1.1)', "."),
]


def test_a_ratio_against_its_limits(project: Project) -> None:
    """The whole interval decides; rates for PP and TG, whatever their lengths, times for TTFT."""
    project.config(
        '[models.twin]\nfiles = { F16 = "twin.json" }\ncorpus = "corpus.txt"\n'
        '[models.slow]\nfiles = { F16 = "slow.json" }\ncorpus = "corpus.txt"\n'
    )
    project.script("twin", tg_ns_per_token=[1_000_000, 1_000_000])
    project.script("slow", tg_ns_per_token=[10_000_000, 10_010_000])
    sources = [
        source.replace('"Q4_K_M")\n', '"Q4_K_M", "twin:F16")\n').replace("F16-again", "twin:F16")
        for source, _ in _CLAIMS
    ]
    letters = project.letters(sources, SEED, "--asperf-max-pairs=8")
    assert letters == "".join(letter for _, letter in _CLAIMS)


def test_what_is_reported(project: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The row has the ratio of rates as a factor, the rates of both sides, and what each ran."""
    project.test(_CLAIMS[0][0])
    (row,) = rows(SEED)
    assert row["subject"] == "Q4_K_M / F16 in tg8 of fake"
    assert row["threshold"] == "at least 1.3x"
    assert row["measured"].startswith("1.428x [1.3")
    assert row["brief"].startswith("1428 / 1000 tok/s, 1.428x [1.3")
    (figure,) = row["raw"]["figures"]
    assert figure["unit"] == "x"
    assert {"Q4_K_M model", "F16 model"} <= set(dict(row["ran"]))


def test_types_of_the_cache(project: Project) -> None:
    """A KV type is named as the marker names it, and the plain cache by its type."""
    project.test("""
@pytest.mark.quant("Q8_0")
@pytest.mark.kv_ladder("q8_0", "q4_0")
def test_it(ladder):
    assert_ratio(ladder, "q4_0", "f16", "tg8@d32", at_least=0.9, at_most=1.1)
""")
    result = project.run(SEED)
    result.stdout.fnmatch_lines(["✓ *q4_0 / f16 in tg8@d32 of fake * 0.9x to *"])


def test_builds(project: Project) -> None:
    """The candidate of a gate may be claimed to be faster by a factor, or slower."""
    project.test("""
@pytest.mark.quant("Q8_0")
def test_pass(gate):
    assert_ratio(gate, "candidate", "baseline", "tg8", at_most=0.55)

@pytest.mark.quant("Q8_0")
def test_fail(gate):
    assert_ratio(gate, "candidate", "baseline", "tg8", at_least=0.6)
""")
    result = project.run(SEED, "--asperf-candidate=current,slow_by=1.0")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["✓ *candidate / baseline in tg8 of fake:Q8_0 *tok/s, 0.5* ≤ 0.55x *"]
    )


def test_broken_and_twins_are_invalid(project: Project) -> None:
    """A crash, logits that are no numbers, and one file under two names give no ratio."""
    project.config(
        '[models.twin]\nfiles = { F16 = "f16.json" }\ncorpus = "corpus.txt"\n'
        '[models.bad]\nfiles = { F16 = "bad.json", Q8_0 = "nan.json" }\ncorpus = "corpus.txt"\n'
    )
    project.script("bad", faults={"generate": "crash"})
    project.script("nan", faults={"logits": "nan"})
    sources = [
        f'@pytest.mark.quant_ladder("Q8_0", "{other}")\ndef test_it(ladder):\n'
        f'    assert_ratio(ladder, "{other}", "F16", "tg8", at_most=2)\n'
        for other in ("bad:F16", "bad:Q8_0", "twin:F16")
    ]
    assert project.letters(sources, SEED) == "VVV"


TOLD = {
    'assert_ratio(ladder, "Q4", "F16", "tg8", at_least=1)': "the ladder has no level 'Q4'",
    'assert_ratio(ladder, "Q8_0", "Q8_0", at_least=1)': "Q8_0 is compared with itself",
    'assert_ratio(ladder, "Q8_0", "F16", "tgx", at_least=1)': "'tgx' is not a workload",
    'assert_ratio(ladder, "Q8_0", "F16")': "is not a range",
    'assert_ratio(ladder, "Q8_0", "F16", at_least=2, at_most=1)': "is not a range",
    'assert_ratio(ladder, "Q8_0", "F16", at_least="50%")': "'50%' is not a usable ratio",
    'assert_ratio(ladder, "Q8_0", "F16", at_most=0)': "0 is not a usable ratio",
    'assert_ratio(throughput, "tg8", "tg9", "tg8", at_least=1)': "'tg8' is a third",
    'assert_ratio(throughput, "tg8", "ttft8", at_least=1)': "tg8 and ttft8 are a rate and a time",
    'assert_ratio(throughput("tg8"), "tg8", "tg9", at_least=1)': "has no two sides to compare",
}


def test_bad_input(project: Project) -> None:
    """Each is an error of its own test that says what to write."""
    project.test(
        "".join(
            f'@pytest.mark.quant_ladder("Q8_0")\ndef test_{n}(ladder, throughput):\n    {claim}\n'
            for n, claim in enumerate(TOLD)
        )
    )
    result = project.run()
    result.assert_outcomes(failed=len(TOLD))
    text = result.stdout.str()
    assert [told for told in TOLD.values() if told not in text] == []
    assert text.count("\n  what to do:     ") == len(TOLD)


@pytest.mark.serial
def test_live(live: Project) -> None:
    """On llama.cpp, a prompt in a batch is faster by the token than generation."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0", threads=1)
def test_it(throughput):
    assert_ratio(throughput, "pp128", "tg16", at_least=1.1)
""")
    live.run(SEED).stdout.fnmatch_lines(["✓ *pp128 / tg16 in asperf-draft:Q8_0 * tok/s, * ≥ 1.1x*"])
