"""`assert_monotonic` and `assert_pareto_optimal`: the order of quantizations, and of rates."""

from tests.plugin.conftest import Project

#: Q4_K_M is smaller and generates faster; Q8_0 has the lower PPL and KLD; their PP is alike.
HEAD = (
    '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n'
    '    rates = [ladder[quant].throughput("tg8") for quant in ladder.quants]\n    '
)


def test_each_order_is_decided_by_its_steps(project: Project) -> None:
    """Each step has to be shown; one that equals its neighbor is open or shown false."""
    claims = {
        "assert_monotonic(ladder)": ".",
        'assert_monotonic(ladder, "kld")': ".",
        'assert_monotonic(ladder, "kld", direction="falling")': "F",
        'assert_monotonic(ladder, "ppl")': ".",
        'assert_monotonic(ladder, "size", direction="falling")': ".",
        'assert_monotonic(ladder, "size")': "F",
        'assert_monotonic(ladder, "tg8")': ".",
        'assert_monotonic(ladder, "tg8", direction="falling")': "F",
        'assert_monotonic(ladder, "pp16")': "I",
        "assert_monotonic(rates)": ".",
        "assert_monotonic(rates[::-1])": "F",
        'assert_monotonic(reversed(rates), direction="falling")': ".",
    }
    letters = project.judged(HEAD, claims, "--asperf-repetitions=8")
    assert letters == "".join(claims.values())


def test_each_objective_counts(project: Project) -> None:
    """Worse somewhere is on the front; as good everywhere and better once is off it."""
    claims = {
        '"Q8_0"': ".",
        '"Q4_K_M"': ".",
        '"Q8_0", ["size"]': "F",
        '"Q8_0", ["tg8"]': "F",
        '"Q8_0", ["size", "tg8"]': "F",
        '"Q8_0", ["ppl"]': ".",
        '"Q4_K_M", ["ppl"]': "F",
        '"Q4_K_M", ["kld"]': "F",
        '"Q4_K_M", objectives=["kld", "size"]': ".",
        '"Q8_0", ["pp16"]': "I",
    }
    asserted = [f"assert_pareto_optimal(ladder, {claim})" for claim in claims]
    letters = project.judged(HEAD, asserted, "--asperf-repetitions=8")
    assert letters == "".join(claims.values())


def test_bad_input(project: Project) -> None:
    """Each is an error of its own test, at its own line."""
    messages = {
        'assert_monotonic(ladder, "klp")': "unknown quantity 'klp'; did you mean 'kld'?",
        'assert_monotonic(ladder, "tgx")': "'tgx' is not a workload",
        'assert_monotonic(ladder, "kld", direction="raising")': "did you mean 'rising'?",
        "assert_monotonic([])": "nothing to compare: 0 of at least two",
        "assert_monotonic(rates[:1])": "nothing to compare: 1 of at least two",
        "assert_monotonic(ladder.of('Q8_0'))": "nothing to compare: 1 of at least two",
        "assert_monotonic(rates[0])": "is not what it judges",
        "assert_monotonic([rates[0], ladder['Q8_0'].kld])": "is not what it judges",
        'assert_pareto_optimal(ladder, "Q6_K")': "the quant sweep has no quantization 'Q6_K'",
        'assert_pareto_optimal(ladder, "Q8_0", ["sise"])': "did you mean 'size'?",
        'assert_pareto_optimal(ladder, "Q8_0", [])': "no objective to compare quantizations by",
        'assert_pareto_optimal(rates, "Q8_0")': "is not what it judges",
    }
    project.rejects(HEAD, messages)


def test_only_scores_need_a_score(project: Project) -> None:
    """Speed and size need neither F16 nor a corpus; a quantization that broke is INVALID."""
    for name in ("q8", "q4"):
        project.script(name, faults={"score": "crash"})
    project.config('[models.bare]\nfiles = { Q8_0 = "q8.json", Q4_K_M = "q4.json" }\n')
    claims = {
        'assert_monotonic(ladder, "tg8")': ".",
        'assert_monotonic(ladder, "size", direction="falling")': ".",
        'assert_pareto_optimal(ladder, "Q4_K_M", ["size", "tg8"])': ".",
        'assert 0.5 <= ladder["Q8_0"].size / ladder["Q4_K_M"].size <= 2': ".",
    }
    head = '@pytest.mark.model("bare")\n' + HEAD
    letters = project.judged(head, claims, "--asperf-repetitions=8")
    assert letters == "".join(claims.values())
    project.rejects(head, {'assert_monotonic(ladder, "kld")': "bare:F16: there is no script"})
    assert project.judged(HEAD, ['assert_monotonic(ladder, "kld")']) == "V"
