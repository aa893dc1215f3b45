from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project


def test_it_names_the_level(project: Project) -> None:
    """All fixtures of a test measure that level, PPL against F16."""
    project.test("""
@pytest.mark.quant("q4_k_m")
def test_it(quant, model, throughput, perplexity):
    assert quant == model.quant == perplexity.name == "Q4_K_M"
    assert repr(perplexity) == "<Quant fake:Q4_K_M vs F16>"
    timed = throughput("tg8") > 1
    assert timed and dict(timed.subject.ran)["model"] == "fake:Q4_K_M"
    assert perplexity.kld.estimate.low > 0 < perplexity.delta.estimate.low
    assert perplexity.ppl > 1
""")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ('quant("Q9")', "unknown quantization 'Q9'"),
        ('quant("fake:Q8_0")', "unknown quantization 'fake:Q8_0'"),
        ('quant("Q6_K")', "no file for quantization Q6_K"),
        ('quant("Q8_0", "Q4_K_M")', "2 arguments for level"),
        ('quant("Q8_0", baseline="F16")', "unknown argument 'baseline'"),
        ('quant("Q8_0")\n@pytest.mark.quant_ladder("Q4_K_M")', "both a quant and a quant_ladder"),
        ('model("fake:Q8_0")\n@pytest.mark.quant("Q4_K_M")', "but the model spec is fake:Q8_0"),
        ('quant("F16")', "fake:F16 has no quantization to compare with F16"),
    ],
)
def test_a_bad_marker_hits_its_own_test_only(project: Project, marker: str, told: str) -> None:
    """Its test is an error; the next one is measured."""
    project.test(f"""
@pytest.mark.{marker}
def test_bad(perplexity):
    perplexity.ppl.estimate

@pytest.mark.quant("Q8_0")
def test_sound(perplexity):
    perplexity.ppl.estimate
""")
    result = project.run()
    result.assert_outcomes(errors=1, passed=1)
    assert told in result.stdout.str()


@pytest.mark.parametrize(
    ("engine", "near", "others"),
    [("llama_cpp", "Q4_K_M", "mxfp4"), ("mlx", "mxfp4", "Q4_K_M")],
)
@pytest.mark.parametrize("marker", ['quant("Q9")', 'quant_ladder("Q9")'])
def test_an_unknown_level_lists_those_of_its_engine(
    project: Project, marker: str, engine: str, near: str, others: str
) -> None:
    """The levels to choose from are the ones that the model's engine has."""
    project.test(f"""
@pytest.mark.model("asperf-draft", engine="{engine}")
@pytest.mark.{marker}
def test_bad(quant, throughput):
    pass
""")
    result = project.run()
    result.assert_outcomes(errors=1)
    (remedy,) = [line for line in result.outlines if line.startswith("  what to do: ")]
    assert near in remedy
    assert others not in remedy


def test_without_a_level_there_is_no_delta(project: Project) -> None:
    """PPL against a baseline needs to be told the level."""
    project.test("def test_it(perplexity):\n    perplexity.ppl.estimate\n")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*fake has no quantization to compare with F16, and no KV cache *", "*quant(*"]
    )
