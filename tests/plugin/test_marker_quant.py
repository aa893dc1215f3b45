from tests.plugin.conftest import Project, marked


def test_it_names_the_level(project: Project) -> None:
    """All fixtures of a test measure that quantization, PPL against F16."""
    project.test("""
@pytest.mark.quant("q4_k_m")
def test_it(quant, model, throughput, perplexity):
    assert quant == model.quant == perplexity.name == "Q4_K_M"
    assert repr(perplexity) == "<Quant fake:Q4_K_M vs F16>"
    timed = throughput("tg8") > 1
    assert timed and dict(timed.facts)["model"] == "fake:Q4_K_M"
    assert perplexity.kld.estimate.low > 0 < perplexity.delta.estimate.low
    assert perplexity.ppl > 1
""")
    project.run().assert_outcomes(passed=1)


def test_a_bad_marker_hits_its_own_test_only(project: Project) -> None:
    """Its test is an error; without a quantization there is nothing to compare with F16."""
    messages = {
        'quant("Q9")': "unknown quantization 'Q9'",
        'quant("fake:Q8_0")': "unknown quantization 'fake:Q8_0'",
        'quant("Q6_K")': "no file for quantization Q6_K",
        'quant("Q8_0", baseline="F16")': "unknown argument 'baseline'",
        'quant("Q8_0")\n@pytest.mark.quant_ladder("Q4_K_M")': "both a quant and a quant_ladder",
        'model("fake:Q8_0")\n@pytest.mark.quant("Q4_K_M")': "but the model spec is fake:Q8_0",
        'quant("F16")': "fake:F16 has no quantization to compare with F16",
        'model("fake")': "fake has no quantization to compare with F16, and no KV cache ",
    }
    project.rejects(marked("perplexity"), messages, in_setup=True)


def test_an_unknown_level_lists_those_of_its_engine(project: Project) -> None:
    """The quantizations to choose from are those of the model's engine."""
    project.claims(
        marked("quant, throughput"),
        [
            f'model("asperf-draft", engine="{engine}")\n@pytest.mark.{marker}("Q9")'
            for engine in ("llama_cpp", "mlx")
            for marker in ("quant", "quant_ladder")
        ],
    )
    result = project.run()
    result.assert_outcomes(errors=4)
    remedies = [line for line in result.outlines if line.startswith("  what to do: ")]
    assert ["Q4_K_M" in remedy for remedy in remedies] == [True, True, False, False]
    assert ["mxfp4" in remedy for remedy in remedies] == [False, False, True, True]
