"""Levels of another model in a ladder, and the claims that hold one level against another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

#: Beside `fake`: the same levels with half the noise, and a model whose 8 bits are fake's own file.
MODELS = """
[models.tuned]
files = { Q8_0 = "t8.json", Q4_K_M = "t4.json" }
[models.copied]
files = { Q8_0 = "q8.json", Q4_K_M = "same4.json" }
"""
TUNED, PLAIN = ("tuned:Q8_0", "tuned:Q4_K_M"), ("Q8_0", "Q4_K_M")

HEAD = f"""
tuned, plain = {TUNED}, {PLAIN}
four = pytest.mark.quant_ladder(*tuned, *plain)

def of(ladder, *levels):
    return [ladder[level] for level in levels]
"""


@pytest.fixture
def tuned(project: Project) -> Project:
    """A project with a second model that degrades less, of the same sizes and speeds."""
    project.config(MODELS)
    project.script("t8", size_bytes=2000, noise=0.01, tg_ns_per_token=[900_100, 900_200, 900_000])
    project.script("t4", size_bytes=1000, noise=0.1, tg_ns_per_token=[700_200, 700_000, 700_100])
    project.script("same4", size_bytes=1000, noise=0.3, note="the same weights, another file")
    return project


def test_a_rung_may_be_of_another_model(tuned: Project) -> None:
    """It is scored on the same chunks in the same pass, and read in the same turns."""
    log = tuned.path / "f16.log"
    tuned.script("f16", log=str(log))
    tuned.test(
        HEAD
        + """
@four
def test_all(ladder):
    assert ladder.levels == (*tuned, *plain)
    plain_kld, tuned_kld = ladder["Q4_K_M"].kld, ladder["tuned:Q4_K_M"].kld
    assert tuned_kld.high < plain_kld.low
    assert ladder["tuned:Q8_0"].level == "tuned:Q8_0"
    rates = ladder.readings("tg8")
    assert rates["tuned:Q8_0"].rate.point == pytest.approx(rates["Q8_0"].rate.point, rel=1e-3)

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


@pytest.mark.parametrize(
    ("claim", "letter", "told"),
    [
        ('of(ladder, *tuned)[1], than=ladder["Q4_K_M"]', ".", "KLD of tuned:Q4_K_M less that of "),
        ('ladder["tuned:Q4_K_M"], than=ladder["Q4_K_M"], quantity="ppl"', ".", "below 0 %"),
        ("of(ladder, *tuned), than=of(ladder, *plain)", ".", "below 0 nats: 3 of 3 shown; Q8_0 "),
        ('ladder["tuned:Q4_K_M"], than=ladder["Q4_K_M"], times=2', ".", "2 times the KLD loss of"),
        ('ladder["tuned:Q4_K_M"], than=ladder["Q4_K_M"], times=100', "F", "100 times the KLD"),
        (
            'ladder["tuned:Q4_K_M"], than=ladder["Q4_K_M"], quantity="ppl", times=2',
            ".",
            "2 times the PPL loss of",
        ),
        ("of(ladder, *plain), than=of(ladder, *tuned)", "F", "Q8_0 → Q4_K_M "),
        ('ladder["Q8_0"], than=ladder["Q8_0"]', "V", "both are the file sha256 "),
    ],
)
def test_degrading_less(tuned: Project, claim: str, letter: str, told: str) -> None:
    """Each level and each step is judged, paired, and a level cannot beat itself."""
    tuned.test(f"{HEAD}\n@four\ndef test_it(ladder):\n    assert_degrades_less({claim})\n")
    result = tuned.run("-v")
    word = {".": "PASSED", "F": "FAILED", "V": "INVALID"}[letter]
    result.stdout.fnmatch_lines([f"test_it.py::test_it {word} *"])
    assert told in result.stdout.str()


def test_the_same_weights_in_another_file_are_found(tuned: Project) -> None:
    """Scores that agree to the last bit are of one model, whatever the file is called."""
    tuned.test("""
@pytest.mark.quant_ladder("copied:Q4_K_M", "Q4_K_M")
def test_it(ladder):
    assert_degrades_less(ladder["copied:Q4_K_M"], than=ladder["Q4_K_M"])
""")
    tuned.run().stdout.fnmatch_lines(
        ["test_it.py V *", "*identical-to-baseline: both arms give all * tokens the same *"]
    )


def test_levels_of_different_work_are_not_compared(tuned: Project) -> None:
    """Another baseline, or other chunks, is unequal work."""
    tuned.test("""
kept = {}

@pytest.mark.quant_ladder("tuned:Q4_K_M")
def test_one(ladder):
    kept["one"] = ladder["tuned:Q4_K_M"]
    assert kept["one"].ppl > 0

@pytest.mark.quant_ladder("Q4_K_M", baseline="Q8_0")
def test_baseline(ladder):
    assert_degrades_less(kept["one"], than=ladder["Q4_K_M"])

@pytest.mark.quant_ladder("Q4_K_M", chunks=3)
def test_chunks(ladder):
    assert len(ladder["Q4_K_M"].result.chunks) == 3
    assert_degrades_less(kept["one"], than=ladder["Q4_K_M"])
""")
    tuned.run().stdout.fnmatch_lines(
        [
            "test_it.py .VV *",
            "*unequal-work: baseline sha256 * against sha256 *",
            "*unequal-work: tokens sha256 * against sha256 *",
        ]
    )


@pytest.mark.parametrize(
    ("claim", "letter"),
    [
        ('"size", within="0%"', "F"),
        ('"size", within="40%"', "."),
        ('"tg8", within="1%"', "."),
        ('"tg8", within="1%"', "I"),
        ('"ppl", within="0.1%"', "F"),
        ('"ppl", within="50%"', "."),
    ],
)
def test_being_alike(tuned: Project, claim: str, letter: str) -> None:
    """The whole interval lies within the limits, or outside, or neither."""
    tuned.test(
        f"""
@pytest.mark.quant_ladder("tuned:Q4_K_M", "Q4_K_M")
def test_it(ladder):
    assert_equivalent(ladder, "tuned:Q4_K_M", "Q4_K_M", {claim})
"""
    )
    budget = ["--asperf-max-pairs=5"] if letter == "I" else []
    result = tuned.run(*budget)
    result.stdout.fnmatch_lines([f"test_it.py {letter} *", "*of tuned:Q4_K_M against fake:Q4_K_M*"])


def test_being_faster_is_not_being_alike(tuned: Project) -> None:
    """A rate above the limits fails as one below does, and says what ran on both sides."""
    tuned.test("""
@pytest.mark.quant_ladder("tuned:Q4_K_M", "Q8_0")
def test_it(ladder):
    assert_equivalent(ladder, "tuned:Q4_K_M", "Q8_0", "tg8", within="10%")
""")
    result = tuned.run("-v")
    line = "✗  tg8 of tuned:Q4_K_M against fake:Q8_0 * 1.2*x [[]*"
    result.stdout.fnmatch_lines(["test_it.py::test_it FAILED *", "*fake:Q8_0 model: *", line])


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("assert_degrades_less(ladder, than=ladder)", "the first argument is not a level that was"),
        ('assert_degrades_less(ladder["Q8_0"], than=ladder["Q8_0"], times=0)', "times=0 is not a"),
        ("assert_degrades_less([], than=[])", "the first argument is not a level that was scored"),
        (
            'assert_degrades_less(ladder["Q8_0"], than="Q8_0")',
            "than is not a level that was scored",
        ),
        (
            'assert_degrades_less(ladder["Q8_0"], than=[ladder["Q8_0"]] * 2)',
            "1 against 2 levels",
        ),
        (
            'assert_degrades_less(ladder["Q8_0"], than=ladder["Q8_0"], quantity="kdl")',
            "unknown quantity 'kdl'; did you mean 'kld'?",
        ),
        ('assert_equivalent(ladder, "Q8_0", "Q4_K_M", "kld")', "kld has no relative change"),
        (
            'assert_equivalent(ladder, "Q8_0", "Q4_K_M", "tg8", within=0)',
            "within=0 cannot be shown",
        ),
        ('assert_equivalent(ladder, "Q8_0", "Q8_0", "size")', "Q8_0 is compared with itself"),
        ('assert_equivalent(ladder, "Q8_0", "tuned:Q8_0")', "the ladder has no level 'tuned:Q8_0'"),
        ('assert_equivalent(ladder, "Q8_0", "Q4_K_M", "tg8", within="5")', "'5' is not a usable"),
    ],
)
def test_nonsense_is_an_error(tuned: Project, claim: str, told: str) -> None:
    """What cannot be claimed is refused at the test's own line."""
    tuned.test(
        f'\n@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    {claim}\n'
    )
    result = tuned.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  what to do: *", "test_it.py:6: ConfigError"])
    assert told in result.stdout.str()


@pytest.mark.parametrize(
    ("rungs", "told"),
    [
        ('"tunned:Q8_0"', "unknown model 'tunned'; did you mean 'tuned'?"),
        ('"tuned:Q8"', "unknown quantisation level 'Q8'"),
        ('"tuned:"', "unknown quantisation level ''"),
        ('":Q8_0"', "quant_ladder: ':Q8_0'"),
        ('"tuned:Q6_K"', "model 'tuned' has no file for level Q6_K"),
        ('"tuned:Q8_0", "tuned:q8_0"', "tuned:Q8_0 is named twice"),
        ('"Q8_0", "fake:Q8_0"', "fake:Q8_0 is named twice"),
        ('"fake:F16"', "fake:F16 is named twice in the ladder, the baseline included"),
        ('"Q8_0", chunks=1', "quant_ladder: chunks: 1 is not"),
        ('"Q8_0", chunks="6"', "quant_ladder: chunks: '6' is not"),
        ('"Q8_0", chunk=6', "unknown argument 'chunk'; did you mean 'chunks'?"),
    ],
)
def test_a_rung_that_is_none_is_refused(tuned: Project, rungs: str, told: str) -> None:
    """The message names the test and what it could mean, and no other test is disturbed."""
    tuned.test(f"""
@pytest.mark.quant_ladder({rungs})
def test_it(ladder):
    pass

@pytest.mark.quant("Q8_0")
def test_other(throughput):
    throughput("tg8").rate
""")
    result = tuned.run()
    result.assert_outcomes(errors=1, passed=1)
    assert told in result.stdout.str()
