"""A failing `assert` or a debugger shows one short line of a fixture's value."""

from tests.plugin.conftest import Project

TEST = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_values(model, throughput, memory, ladder, gate):
    values = model, throughput, throughput("tg8"), memory, ladder, ladder["Q8_0"]
    ttft = [ladder[quant].latency("pp8+tg8").ttft for quant in ladder.quants]
    for value in (*values, ladder["Q8_0"].ppl, ttft[0] / ttft[1], gate, gate("tg8")):
        print("value:", value)
    assert ladder["Q8_0"].ppl > 1

@pytest.fixture
def shown(speculation):
    return f"value: {speculation}"

@pytest.mark.speculative(draft="fake:Q4_K_M", target="fake:F16")
def test_speculation(shown):
    print(shown)
"""
SHOWN = (
    "<Model fake:Q8_0>",
    "<Throughput of fake:Q8_0>",
    "<tg8 fake:Q8_0>",
    "<PPL fake:Q8_0 vs F16>",
    "<TTFT in pp8+tg8 fake:Q8_0 / TTFT in pp8+tg8 fake:Q4_K_M>",
    "<Memory of fake:Q8_0>",
    "<Ladder Q8_0, Q4_K_M vs fake:F16>",
    "<Quant fake:Q8_0 vs F16>",
    "<Gate on fake:Q8_0: current vs current>",
    "<GatedWorkloads tg8 of fake:Q8_0: current vs current>",
    "<Speculation fake:Q4_K_M → fake:F16, k=4>",
)


def test_values_of_fixtures_are_shown_in_a_line(project: Project) -> None:
    """Each names its subject; showing a quantity measures nothing."""
    project.test(TEST)
    result = project.run("-s", "--asperf-candidate=current")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random([f"*value: {line}" for line in SHOWN])
