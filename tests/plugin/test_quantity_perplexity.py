"""PPL, its change, KLD and the same top token, against limits and of one model over another."""

import pytest

from tests.plugin.conftest import Project

#: In addition to `fake`: the same quantizations with half the noise, a copy of fake's 8 bits, and
#: fake's 4 bits in another file.
MODELS = """
[models.tuned]
files = { Q8_0 = "t8.json", Q4_K_M = "t4.json" }
[models.copied]
files = { Q8_0 = "q8.json", Q4_K_M = "same4.json" }
"""
FOUR = """@pytest.mark.quant_ladder("tuned:Q8_0", "tuned:Q4_K_M", "Q8_0", "Q4_K_M")
def test_it(ladder):
    t8, t4, p8, p4 = (ladder[quant] for quant in ladder.quants)
    """
PAIR = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    '


@pytest.fixture
def tuned(project: Project) -> Project:
    """A project with a second model that degrades less, of the same sizes and speeds."""
    project.config(MODELS)
    project.script("t8", size_bytes=2000, noise=0.01, tg_ns_per_token=[900_100, 900_200, 900_000])
    project.script("t4", size_bytes=1000, noise=0.1, tg_ns_per_token=[700_200, 700_000, 700_100])
    project.script("same4", size_bytes=1000, noise=0.3, note="the same weights, another file")
    return project


def test_one_quantization_against_limits(project: Project) -> None:
    """An interval that is beyond a limit passes or fails, and is otherwise open."""
    claims = {  # Q8_0 is shown within 1 % of F16, and Q4_K_M shown 1 to 10 % worse
        'assert_ppl_delta(ladder["Q8_0"], below="1%")': ".",
        'assert_ppl_delta(ladder["Q8_0"], above="-1%")': ".",
        'assert_ppl_delta(ladder["Q8_0"], above=0.01)': "F",
        'assert_ppl_delta(ladder["Q4_K_M"], below="1 %")': "F",
        'q4 = ladder["Q4_K_M"]; assert_ppl_delta(q4, below=q4.delta.estimate.high)': "I",
        'assert ladder["Q4_K_M"].delta > "1%"': ".",
        'assert "-1%" < ladder["Q8_0"].delta <= "0.5%"': ".",
        'd = ladder["Q4_K_M"].delta; assert d >= d.estimate.point': "I",
        'assert ladder["Q8_0"].kld < 0.01': ".",
        'assert ladder["Q4_K_M"].kld < "0.01 nats"': "F",
        'assert 50 < ladder["Q8_0"].ppl < 65': ".",
        'assert ladder["Q8_0"].same_top >= "90%"': ".",
        'assert ladder["Q4_K_M"].same_top >= "99.9%"': "F",
        # Q4_K_M is 1.43 times as fast as F16 and loses 2.4 % of PPL; of Q8_0 no loss is shown.
        'assert ladder["Q4_K_M"].efficiency("tg8") <= 5': ".",
        'assert ladder["Q4_K_M"].efficiency("tg8") >= 5': "F",
        'assert ladder["Q8_0"].efficiency("tg8") >= 1e5': "V",
    }
    letters = project.judged(PAIR, claims, "--asperf-repetitions=8")
    assert letters == "".join(claims.values())


def test_one_quantization_against_another(tuned: Project) -> None:
    """Both are compared on the same tokens, in any direction, by a factor or from step to step."""
    claims = {
        "assert t4.kld < p4.kld": ".",
        "assert p4.kld < t4.kld": "F",
        "assert t4.kld / p4.kld < 1 / 2": ".",
        "assert t4.kld / p4.kld <= '1%'": "F",
        "assert t4.delta < p4.delta": ".",
        "assert t4.delta / p4.delta < 1 / 2": ".",
        "assert t4.delta - p4.delta < '-1%'": ".",
        "assert (t4.kld - t8.kld) < (p4.kld - p8.kld)": ".",
        "assert (p4.delta - p8.delta) < (t4.delta - t8.delta)": "F",
        "assert 1 / 1.5 <= t4.ppl / p4.ppl <= 1.5": ".",
        "assert 1 / 1.001 <= t4.ppl / p4.ppl <= 1.001": "F",
        "assert t4.ppl < p4.ppl": ".",
        "assert t4.ppl / p4.ppl < (t4.ppl / p4.ppl).estimate.point": "I",
        "assert t8.same_top > p4.same_top": ".",
        "assert 0.6 <= t4.size / p4.size <= 1.4": ".",
        "assert t4.size / p4.size == 1": "F",
    }
    tuned.claims(FOUR, claims)
    result = tuned.run()
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "E   FAIL *KLD tuned:Q4_K_M vs F16 / KLD fake:Q4_K_M vs F16: 11.* %*, wanted ≤ 1 %",
            "E   FAIL *(ΔPPL fake:Q4_K_M *- ΔPPL *) - (ΔPPL tuned:Q4_K_M *- *): +2*wanted < 0 %",
        ]
    )


def test_what_is_one_or_was_not_scored_alike_is_invalid(tuned: Project) -> None:
    """One file, the same weights in another file, and another baseline or text are found."""
    tuned.test("""
kept = {}

@pytest.mark.quant_ladder("copied:Q8_0", "Q8_0")
@pytest.mark.parametrize("sign", "<-/")
def test_one_file(ladder, sign):
    a, b = ladder["copied:Q8_0"].kld, ladder["Q8_0"].kld
    assert {"<": lambda: a < b, "-": lambda: a - b < 1, "/": lambda: a / b < 2}[sign]()

@pytest.mark.quant_ladder("copied:Q4_K_M", "Q4_K_M")
def test_same_weights(ladder):
    assert ladder["copied:Q4_K_M"].ppl / ladder["Q4_K_M"].ppl <= 1.5

@pytest.mark.quant_ladder("tuned:Q4_K_M")
def test_kept(ladder):
    kept["one"] = ladder["tuned:Q4_K_M"]
    assert kept["one"].ppl > 1

@pytest.mark.quant_ladder("Q4_K_M", baseline="Q8_0")
def test_other_baseline(ladder):
    assert kept["one"].kld < ladder["Q4_K_M"].kld

@pytest.mark.quant_ladder("Q4_K_M", chunks=3)
def test_other_chunks(ladder):
    assert kept["one"].kld < ladder["Q4_K_M"].kld
""")
    tuned.run().stdout.fnmatch_lines(
        [
            "test_it.py VVVV.VV *",
            "*both are the file sha256 *",
            "*both give all * tokens the same *",
            "*baseline sha256 * against sha256 *",
            "*the two variants have different numbers of chunks*",
        ]
    )


def test_more_chunks_than_the_marker_allows_are_named_there(tuned: Project) -> None:
    """The option alone would measure as many again."""
    tuned.test("""import pytest

@pytest.mark.quant_ladder("Q8_0", chunks=3)
def test_capped(perplexity):
    assert perplexity.delta < 0.5

@pytest.mark.quant_ladder("Q8_0")
def test_free(perplexity):
    assert perplexity.delta < 0.5
""")
    done = tuned.run("--asperf-chunks=4")
    done.stdout.fnmatch_lines(
        [
            "*measure 5 chunks (write chunks=5 in the marker): --asperf-chunks=5",
            "*measure 5 chunks: --asperf-chunks=5",
        ]
    )


def test_a_quantization_may_be_of_another_model(tuned: Project) -> None:
    """It is scored on the same chunks in the same pass, and timed in run pairs with the others."""
    log = tuned.path / "f16.log"
    tuned.script("f16", log=str(log))
    tuned.test(
        FOUR.replace("test_it", "test_all")
        + """assert ladder.quants == ("tuned:Q8_0", "tuned:Q4_K_M", "Q8_0", "Q4_K_M")
    assert t4.kld.estimate.high < p4.kld.estimate.low
    rates = [quant.throughput("tg8").estimate.point for quant in (t8, p8)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-3)

@pytest.mark.quant_ladder("tuned:Q4_K_M", "Q4_K_M")
def test_each(perplexity, quant, model):
    assert model.label == (quant if ":" in quant else f"fake:{quant}")
    assert_ppl_delta(perplexity, below="50%")
"""
    )
    result = tuned.run("-v", "--asperf-repetitions=5")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_each?tuned:Q4_K_M? *", "✓  ΔPPL tuned:Q4_K_M vs F16 *"])
    assert sum(line.startswith("score") for line in log.read_text().splitlines()) == 6


def test_bad_input(tuned: Project) -> None:
    """Each is an error of its own test, at its own line."""
    messages = {
        'assert_ppl_delta(ladder["Q8_0"])': "needs exactly one of below and above",
        'assert_ppl_delta(ladder["Q8_0"], below="1%", above=0)': "needs exactly one of below and",
        'assert_ppl_delta(ladder["Q8_0"], below="1")': "'1' is not a usable limit",
        'assert_ppl_delta(ladder, below="1%")': 'write assert_ppl_delta(ladder["Q8_0"],',
        'assert ladder["Q8_0"].delta < float("nan")': "nan is not a usable limit",
        'assert ladder["Q8_0"].kld < "1%"': "nats cannot be compared with %",
        'assert ladder["Q8_0"].kld < 0': "0 is no limit in nats",
        'assert ladder["Q8_0"].delta < ladder["Q4_K_M"].kld': "these are in change and nats",
        'assert ladder["Q8_0"].kld < ladder["Q8_0"].kld': "is compared with itself",
        'assert ladder["F16"].delta < 1': "F16 is the baseline of the quant sweep: nothing "
        "to compare",
        'assert ladder["tuned:Q8_0"].kld < 1': "the quant sweep has no quantization 'tuned:Q8_0'",
        'assert ladder["Q8_0"].kld': "is used as a truth value",
    }
    tuned.rejects(PAIR, messages)


REJECTED = {
    '"tunned:Q8_0"': "unknown model 'tunned'; did you mean 'tuned'?",
    '"tuned:Q8"': "unknown quantization 'Q8'",
    '"tuned:"': "unknown quantization ''",
    '":Q8_0"': "quant_ladder: ':Q8_0'",
    '"tuned:Q6_K"': "model 'tuned' has no file for quantization Q6_K",
    '"tuned:Q8_0", "tuned:q8_0"': "tuned:Q8_0 is named twice",
    '"Q8_0", "fake:Q8_0"': "fake:Q8_0 is named twice",
    '"Q8_0", chunks=1': "quant_ladder: chunks: 1 is not",
    '"Q8_0", chunks="6"': "quant_ladder: chunks: '6' is not",
    '"Q8_0", chunk=6': "unknown argument 'chunk'; did you mean 'chunks'?",
}


def test_a_quantization_that_does_not_exist_is_an_error(tuned: Project) -> None:
    """The message has the likely meaning, and no other test is disturbed."""
    for number, quants in enumerate(REJECTED):
        tuned.test(
            f"@pytest.mark.quant_ladder({quants})\ndef test_it(ladder):\n    pass\n",
            name=f"test_{number}",
        )
    tuned.claims('@pytest.mark.quant("Q8_0")\ndef test_it(throughput):\n    ',
                 ['assert throughput("tg8") > 1'])  # fmt: skip
    result = tuned.run()
    result.assert_outcomes(errors=len(REJECTED), passed=1)
    text = result.stdout.str()
    assert [message for message in REJECTED.values() if message not in text] == []
