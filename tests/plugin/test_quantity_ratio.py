"""Ratios and differences of quantizations, KV types, models, workloads and builds, in pairs."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.plugin.conftest import Project

LADDER = (
    '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M", "twin:F16")\ndef test_it(ladder):\n'
    '    q4, q8, f16 = ladder["Q4_K_M"], ladder["Q8_0"], ladder["F16"]; twin = ladder["twin:F16"]\n'
    "    "
)
OF_ONE = '@pytest.mark.quant("Q8_0")\ndef test_it(throughput, latency):\n    '
BUILDS = (
    '@pytest.mark.quant("F16")\ndef test_it(gate):\n    new, old = gate.candidate, gate.baseline; '
)
SEED = "--asperf-seed=1"
MODELS = "\n".join(
    f'[models.{name}]\nfiles = {{ F16 = "{name}.json" }}\ncorpus = "corpus.txt"'
    for name in ("twin", "slow")
)


def test_quantizations(project: Project) -> None:
    """The whole interval decides; rates of PP and TG, and times of TTFT; sizes need no pairs."""
    claims = {  # Q4_K_M needs 0.7 of F16's time for a token of TG, and 1.02 of it for PP
        'assert q4.throughput("tg8") / f16.throughput("tg8") >= 1.3': ".",
        'assert q4.throughput("tg8") / ladder["baseline"].throughput("tg8") > 1.5': "F",
        'assert 1.2 <= q4.throughput("tg8") / q8.throughput("tg8") <= 1.4': ".",
        'assert 1.1 < q4.throughput("tg8") / q8.throughput("tg8") < "120%"': "F",
        'assert q4.throughput("tg8") > q8.throughput("tg8")': ".",
        'assert q4.throughput("tg8") <= q8.throughput("tg8")': "F",
        'assert q4.throughput("tg8") - q8.throughput("tg8") >= "300 tok/s"': ".",
        'assert q4.throughput("tg8") - q8.throughput("tg8") > 400': "F",
        # A median run pair at the limit decides nothing.
        'assert f16.throughput("tg8") >= twin.throughput("tg8")': "I",
        'assert f16.throughput("tg8") - twin.throughput("tg8") < 0': "I",
        'assert 0.9 <= f16.throughput("tg8") / twin.throughput("tg8") <= 1.1': ".",
        'assert 0.9 <= q8.latency("ttft16") / f16.latency("ttft16") <= 1.2': ".",
        'assert "-0.4 ms" < q4.latency("tg8") - f16.latency("tg8") < "-0.2 ms"': ".",
        'assert q4.latency("pp16") - f16.latency("pp16") > "1 ms"': "F",
        # The size of a script is that of its text.
        "assert 3 <= q4.size / f16.size <= 9": ".",
        'assert q8.size / ladder["baseline"].size <= "40%"': "F",
        "assert q4.size < q8.size": ".",
    }
    project.config(MODELS)
    project.script("twin", tg_ns_per_token=[1_000_000, 1_000_000])
    letters = project.judged(LADDER, claims, SEED, "--asperf-max-pairs=8")
    assert letters == "".join(claims.values())


def test_workloads_of_one_model(project: Project) -> None:
    """Rates are compared by the token, though one is timed in parts of 8 and one of 33."""
    project.config(MODELS)
    project.script("slow", tg_ns_per_token=[10_000_000, 10_010_000])
    claims = {
        'assert 80 <= throughput("pp16") / throughput("tg8") <= 95': ".",
        'assert latency("ttft64") / latency("ttft16") < 3.9': "F",
        'assert 3.9 < latency("pp64") / latency("pp16") < 4.1': ".",
        'assert 5 < latency("tg16") / latency("ttft16") < 6': ".",
        'assert "0.7 ms" < latency("itl16") - latency("ttft16") < 0.8': ".",
        'a, b = (throughput(w, model="slow:F16") for w in ("tg24", "tg100@d64"));'
        " assert 0.9 <= a / b <= 1.1": ".",
    }
    assert project.judged(OF_ONE, claims, SEED) == "".join(claims.values())


def test_pairs_count_for_each_claim_about_the_same_two_sides(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """A chain, the inverse, and later assertions that the pairs decide, start no process."""
    log = project.path / "log.txt"
    project.script("q4", log=str(log))
    project.test("""
@pytest.mark.quant_ladder("Q4_K_M")
def test_it(ladder):
    ratio = ladder["Q4_K_M"].throughput("tg8") / ladder["F16"].throughput("tg8")
    assert ratio >= 1.2
    loads = open("log.txt").read().count("load ")
    assert 1.2 <= ratio < 1.6
    assert ladder["Q4_K_M"].throughput("tg8") > ladder["F16"].throughput("tg8")
    assert 1.4 < ratio.estimate.point < 1.5
    assert ladder["F16"].throughput("tg8") / ladder["Q4_K_M"].throughput("tg8") <= 0.8
    assert open("log.txt").read().count("load ") == loads
    assert (ratio < 1.42).outcome != "PASS"
""")
    found = rows(SEED, "--asperf-max-pairs=20")
    pairs = [[pair["ratio"] for pair in row["compared"]["pairs"]] for row in found]
    assert pairs[0] == pairs[1] == pairs[2]
    assert len(pairs[-1]) > len(pairs[0])
    assert pairs[-1][: len(pairs[0])] == pairs[0]
    assert [1 / ratio for ratio in pairs[3]] == pytest.approx(pairs[0])


def test_what_is_reported(project: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The row has the ratio of rates as a factor, both rates, and both run records."""
    project.test("""
@pytest.mark.quant_ladder("Q4_K_M")
def test_it(ladder):
    assert ladder["Q4_K_M"].throughput("tg8") / ladder["F16"].throughput("tg8") >= 1.3

@pytest.mark.quant("Q8_0")
@pytest.mark.kv_ladder("q8_0", "q4_0")
def test_types_of_the_cache(ladder):
    assert 0.9 <= ladder["q4_0"].throughput("tg8@d32") / ladder["f16"].throughput("tg8@d32")
""")
    row, of_types = rows(SEED)
    assert row["subject"] == "Q4_K_M / F16 in tg8 of fake"
    assert row["threshold"] == "at least 1.3x"
    assert row["measured"].startswith("1.428x [1.3")
    assert row["brief"].startswith("1428 / 1000 tok/s, 1.428x [1.3")
    (figure,) = row["figures"]
    assert figure["estimate"]["unit"] == "x"
    assert {"Q4_K_M model", "F16 model"} <= set(dict(row["facts"]))
    assert of_types["subject"] == "q4_0 / f16 in tg8@d32 of fake:Q8_0"
    assert of_types["outcome"] == "PASS"


def test_builds(project: Project) -> None:
    """A candidate may be asserted to be faster or slower by a factor, or faster by a share."""
    claims = {  # the baseline needs 1.2 times the candidate's time
        'assert new.throughput("tg32") / old.throughput("tg32") >= 1.1': ".",
        'assert new.latency("tg32") / old.latency("tg32") >= "90%"': "F",
        'assert new.throughput("tg32") > old.throughput("tg32")': ".",
        'assert_no_regression(gate("tg32", "logits"), faster_by="0%")': ".",
        'assert_no_regression(gate("tg32"), faster_by="40%")': "F",
        'assert_no_regression(gate("tg32"), faster_by="20%")': "I",
    }
    steps = [1_000_000, 1_010_000, 995_000, 1_004_000, 990_000, 1_007_000, 1_001_000]
    project.script("f16", tg_ns_per_token=steps)
    builds = ("--asperf-baseline=slow_by=0.2", "--asperf-candidate=current")
    project.claims(BUILDS, claims)
    result = project.run(*builds, SEED, "--asperf-max-pairs=8")
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "E   FAIL *tg32 fake:F16 in current / * wanted ≤ 0.714286x",
            "✓ *current / current,slow_by=0.2 in tg32 of fake:F16 *tok/s, 1.* ≥ 1.1x *",
            "✗ *current / current,slow_by=0.2 in tg32 of fake:F16 * ms, 8* % *≥ 90 % *",
        ]
    )
    project.script("f16", faults={"generate": "crash"})
    assert project.judged(BUILDS, list(claims)[2:4], *builds) == "VV"
    project.rejects(
        BUILDS,
        {
            'assert_no_regression(gate("tg32"), faster_by="-5%")': "faster_by: '-5%' is not a",
            'assert_no_regression(gate("tg32"), faster_by=0, tolerance=0.1)': "tolerance=0.1 and",
            'assert_no_regression(gate("tg32"), tolerance=0)': "tolerance: 0 is too small a limit",
            'assert_no_regression(gate("kld"), kld_below="1 nat")': "kld_below='1 nat' is no limit",
            "assert_no_regression(gate(32))": "gate: '32' is not a workload",
            'assert new.throughput("tg32") > 5': "a build is measured against the other build only",
        },
        *builds,
    )


def test_broken_and_twins_are_invalid(project: Project) -> None:
    """A crash, logits that are no numbers, and one file under two names give no ratio."""
    project.config(
        '[models.twin]\nfiles = { F16 = "f16.json" }\ncorpus = "corpus.txt"\n'
        '[models.bad]\nfiles = { F16 = "bad.json", Q8_0 = "nan.json" }\ncorpus = "corpus.txt"\n'
    )
    project.script("bad", faults={"generate": "crash"})
    project.script("nan", faults={"logits": "nan"})
    head = LADDER.replace('"twin:F16")', '"twin:F16", "bad:F16", "bad:Q8_0")')
    claims = [
        f'assert ladder["{other}"].{kind}("tg8") {sign} f16.{kind}("tg8") < 9'
        for other in ("bad:F16", "bad:Q8_0", "twin:F16")
        for kind, sign in (("throughput", "/"), ("latency", "-"))
    ]
    assert project.judged(head, claims, SEED) == "VVVVVV"


def test_bad_input(project: Project) -> None:
    """Each is an error of its own test with its remedy."""
    project.config(MODELS)
    project.script("twin")
    rates = 'q8.throughput("tg8") / f16.throughput("tg8")'
    project.rejects(
        LADDER,
        {
            'assert ladder["Q4"].size < q8.size': "the quant sweep has no quantization 'Q4'",
            'assert q8.throughput("tg8") / q8.throughput("tg8") > 1': "is compared with itself",
            "assert q8.size / q8.size <= 1": "size of fake:Q8_0 is compared with itself",
            "assert q8.kld <= q8.kld": "is compared with itself",
            "assert q8.throughput('tg8').cv <= q8.throughput('tg8').cv": "is compared with itself",
            'assert q8.throughput("tgx") / f16.throughput("tg8") > 1': "'tgx' is not a workload",
            f'assert {rates} >= "50 ms"': "x cannot be compared with ms",
            f"assert {rates} <= 0": "0 is no limit in x",
            f"assert {rates} <= 1e5": "that is no ratio of two figures",
            'assert q8.throughput("tg8") / f16.latency("ttft8") > 1': "these are in tok/s and ms",
            "assert q8.size - q8.kld > 1": "these are in GiB and nats",
            'assert q8.throughput("tg8") / 40 > 1': "this is no measured quantity",
            'assert q8.throughput("tg8") == f16.throughput("tg8")': "is compared for equality",
        },
    )


def test_a_ratio_that_is_not_asserted(project: Project) -> None:
    """A forgotten `assert`, and a ratio that nothing is compared with, are errors."""
    ratio = 'throughput("pp16") / throughput("tg8")'
    messages = {
        f"{ratio} >= 80": "test_00 compared and did not assert: pp16 / tg8 in fake:Q8_0 at least",
        ratio: "test_01 measured pp16 fake:Q8_0, pp16 fake:Q8_0 / tg8 fake:Q8_0, tg8 fake:Q8_0 and",
        f"assert {ratio}": "<pp16 fake:Q8_0 / tg8 fake:Q8_0> is used as a truth value",
    }
    project.rejects(OF_ONE, messages, SEED)


def test_live(live: Project) -> None:
    """On llama.cpp, a prompt in a batch is faster by the token than generation."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0", threads=1)
def test_it(throughput):
    assert throughput("pp128") / throughput("tg16") >= 1.1
""")
    live.run(SEED).stdout.fnmatch_lines(["✓ *pp128 / tg16 in asperf-draft:Q8_0 * tok/s, * ≥ 1.1x*"])
