"""Tests of a project, run by the tests of a terminal's output."""

#: A sweep, an assertion that no interval decides, and a speed.
TESTS = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_ppl(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.quant("Q8_0")
def test_open(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)

@pytest.mark.model("fake:F16")
def test_speed(throughput):
    throughput("tg8").estimate
"""
