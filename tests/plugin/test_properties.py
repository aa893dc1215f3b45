"""Properties: `model.scores`, `speculation.on`, `ladder.of`, and the example that uses them."""

from pathlib import Path

import pytest_asperf
from tests.plugin.conftest import Project

EXAMPLE = Path(pytest_asperf.__file__).parent / "examples" / "test_properties.py"
BATCHES = """
from hypothesis import given, strategies as st
from pytest_asperf.strategies import bounded, prompts

@bounded(examples=6, seconds=60)
@given(text=prompts(max_chars=3), n_ubatch=st.integers(1, 3))
@pytest.mark.model("fake:F16")
def test_batches(model, text, n_ubatch):
    assert model.scores(text, n_ubatch=n_ubatch).agrees
"""


def test_a_property_that_fails_ends_at_a_small_example(project: Project) -> None:
    """Wrong logits of batches are found, with two characters, in one process of the engine."""
    log = project.path / "log"
    project.script("f16", noise_of_batches=3.0, log=str(log))
    project.test(BATCHES)
    result = project.run("-p", "hypothesispytest")
    result.assert_outcomes(failed=1)
    shown = ["*model=<Model fake:F16>,*", "*text='00',*", "*n_ubatch=1,*"]
    result.stdout.fnmatch_lines(shown)
    scoring = {line.split()[1] for line in log.read_text().splitlines() if line[:5] == "score"}
    assert len(scoring) == 1


def test_an_error_shows_the_input_that_was_drawn(project: Project) -> None:
    """An error in four parts is followed by the example."""
    project.test(BATCHES.replace("n_ubatch=n_ubatch", "after=9"))
    result = project.run("-p", "hypothesispytest")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["scores: 3 tokens, of which none is left*", "*text='00'*"])


def test_scores_of_a_text(project: Project) -> None:
    """Tokens, their NLL, KLD if something differs, and the run record; a part by its position."""
    project.test(
        """
@pytest.mark.model("fake:F16")
def test_it(model: Model):
    whole = model.scores("ab")
    assert whole.tokens == (256, 97, 98)
    assert len(whole.nll) == 2 and not whole.kld and whole.agrees
    assert len(model.scores(whole.tokens, after=2).nll) == 1
    far = model.scores("ab", quant="Q4_K_M")
    assert len(far.kld) == 2 and far.mean_kld > 0 and not far.agrees
    assert (dict(far.ran)["model"], dict(far.ran)["type"]) == ("fake:Q4_K_M", "scripted")
    with pytest.raises(ConfigError, match="'n_bach'; did you mean 'n_batch'"):
        model.scores("ab", n_bach=1)
    with pytest.raises(ConfigError, match="3 tokens, of which none is left to score after 3"):
        model.scores("ab", after=3)
    with pytest.raises(ConfigError, match="after=-1 is not a position"):
        model.scores("ab", after=-1)
    for given in ([1, "a"], 1):
        with pytest.raises(ConfigError, match="not a text"):
            model.scores(given)
"""
    )
    project.run().assert_outcomes(passed=1)


def test_a_ladder_of_other_levels(project: Project) -> None:
    """Quantizations in another order have equal intervals; unequal work raises."""
    project.test(
        """
@pytest.mark.quant_ladder("Q8_0")
def test_it(ladder):
    one, other = ladder.of("Q8_0", "q4_k_m"), ladder.of("Q4_K_M", "Q8_0")
    assert other.quants == ("Q4_K_M", "Q8_0")
    for quant in one.quants:
        assert one[quant].delta.estimate == other[quant].delta.estimate
    for quants in [(), ("Q8_0", "Q8_0"), ("F16",)]:
        with pytest.raises(ConfigError, match="no quantization, one twice, or the baseline"):
            ladder.of(*quants)
"""
    )
    project.run().assert_outcomes(passed=1)


def test_a_pair_that_samples_has_no_single_prompt(project: Project) -> None:
    """One sampled output shows nothing of a distribution."""
    project.test(
        """
@pytest.mark.speculative(draft="fake:Q8_0", target="fake:F16", temperature=1.0)
def test_it(speculation):
    speculation.on("def area(")
"""
    )
    project.run().stdout.fnmatch_lines(["*leave the temperature out*"])


def test_the_shipped_example_holds(live: Project) -> None:
    """Its properties of one model and of a pair pass on the real engine."""
    example = EXAMPLE.read_text().replace("examples=10", "examples=3")
    source = example.replace("asperf-target:F16", "asperf-draft:Q8_0")
    (live.path / "test_it.py").write_text(source, encoding="utf-8")
    result = live.run("-p", "hypothesispytest", "-k", "not ladder and not bits")
    result.assert_outcomes(passed=3, deselected=2)
    result.stdout.fnmatch_lines(["✓ *greedy output asperf-draft:F16 → asperf-draft:Q8_0*"])


def test_a_prompt_that_changes_the_output_fails(project: Project) -> None:
    """Outputs that diverge far from a tie are a FAIL with the place; the engine does not run."""
    project.test(
        """
from types import SimpleNamespace
from pytest_asperf.engine_process import Margin
from pytest_asperf.measure.speculation_result import Divergence

@pytest.mark.parametrize("margin", [0.1, 3.0])
@pytest.mark.speculative(draft="fake:Q8_0", target="fake:F16")
def test_it(speculation, margin, monkeypatch):
    parted = Divergence(0, 4, (7, 8), Margin((margin, 0.0), (0.0, margin)))
    output = SimpleNamespace(divergence=parted, ran=())
    monkeypatch.setattr(PromptSpeculation, "output", lambda _: output)
    assert_lossless(speculation.on("def area("))
"""
    )
    result = project.run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E *FAIL: the assertion is shown false", "E *token 5: 7 alone, 8 with the *"]
    )
