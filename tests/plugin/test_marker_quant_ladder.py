from collections import Counter

from tests.plugin.conftest import Project, marked

N_CHUNKS = 6


def _scored(project: Project, *names: str) -> Counter[str]:
    """Return the number of chunks that each script scored."""
    return Counter(
        {
            name: sum(line.startswith("score") for line in _log(project, name).splitlines())
            for name in names
        }
    )


def _log(project: Project, name: str) -> str:
    path = project.path / f"{name}.log"
    return path.read_text() if path.exists() else ""


def _logging(project: Project, **faults: dict[str, str]) -> None:
    for name in ("f16", "q8", "q4"):
        project.script(name, log=str(project.path / f"{name}.log"), faults=faults.get(name, {}))


def test_a_test_runs_once_for_each_level(project: Project) -> None:
    """Quantizations are the tests' ids, so one can be selected by name."""
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "q4_k_m")
def test_it(quant, perplexity):
    assert perplexity.name == quant
    assert perplexity.ppl > 1
""")
    result = project.run("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["test_it.py::test_it[[]Q8_0] *", "test_it.py::test_it[[]Q4_K_M] *"]
    )
    project.run("test_it.py::test_it[Q8_0]").assert_outcomes(passed=1)


def test_the_whole_ladder_is_one_test(project: Project) -> None:
    """A test with the `ladder` fixture gets all quantizations in the marker's order."""
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert ladder.quants == ("Q8_0", "Q4_K_M")
    assert ladder["Q8_0"].kld.estimate.point < ladder["Q4_K_M"].kld.estimate.point
    with pytest.raises(AsperfError, match="no quantization 'Q6_K'"):
        ladder["Q6_K"].ppl
""")
    project.run().assert_outcomes(passed=1)


def test_the_baseline_is_scored_once_for_all_tests(project: Project) -> None:
    """All tests that share model and baseline share one pass over the chunks."""
    _logging(project)
    project.test("""
@pytest.mark.quant_ladder("Q8_0")
def test_each(perplexity):
    perplexity.ppl.estimate

@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_all(ladder):
    assert_monotonic(ladder, "ppl")

@pytest.mark.quant("Q4_K_M")
def test_one(perplexity):
    perplexity.ppl.estimate
""")
    project.run().assert_outcomes(passed=3)
    assert _scored(project, "f16", "q8", "q4") == dict.fromkeys(("f16", "q8", "q4"), N_CHUNKS)


def test_another_baseline_is_another_pass(project: Project) -> None:
    """A quantization against Q8_0 is another comparison than against F16."""
    _logging(project)
    project.test("""
@pytest.mark.quant_ladder("Q4_K_M")
def test_f16(perplexity):
    assert repr(perplexity).endswith(" vs F16>")
    assert perplexity.ppl > 1

@pytest.mark.quant_ladder("Q4_K_M", baseline="Q8_0")
def test_q8(perplexity):
    assert repr(perplexity).endswith(" vs Q8_0>")
    assert perplexity.ppl > 1
""")
    project.run().assert_outcomes(passed=2)
    scored = _scored(project, "f16", "q8", "q4")
    assert scored == {"f16": N_CHUNKS, "q8": N_CHUNKS, "q4": 2 * N_CHUNKS}


def test_deselected_levels_are_not_measured(project: Project) -> None:
    """Only the tests that run decide which quantizations are in the pass."""
    _logging(project)
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(perplexity):
    perplexity.ppl.estimate
""")
    project.run("test_it.py::test_it[Q8_0]").assert_outcomes(passed=1)
    assert _scored(project, "q8", "q4") == {"q8": N_CHUNKS, "q4": 0}


def test_a_level_that_crashes_costs_the_others_nothing(project: Project) -> None:
    """The quantizations of a broken pass are scored by themselves, and the summary reports it."""
    _logging(project, q4={"score": "crash"})
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(perplexity):
    perplexity.ppl.estimate
""")
    result = project.run()
    result.stdout.fnmatch_lines(
        [
            "test_it.py .V *",
            "*PPL vs F16 fake:Q8_0 *",
            "note: a quantization failed in the common pass*",
        ]
    )


def test_a_crashing_baseline_is_asked_once(project: Project) -> None:
    """A broken one is not tried again for each test that needs it."""
    _logging(project, f16={"load": "crash"})
    project.test("""
@pytest.mark.quant_ladder("Q8_0")
@pytest.mark.parametrize("n", range(3))
def test_it(perplexity, n):
    perplexity.ppl.estimate
""")
    result = project.run()
    result.stdout.fnmatch_lines(["test_it.py VVV *", "* 3 invalid in *"])
    assert _log(project, "f16").count("load") == 1


def test_a_bad_marker_hits_its_own_test_only(project: Project) -> None:
    """Its test is an error; so are an unused quant sweep, and a missing one."""
    messages = {
        "quant_ladder()": "no quantization",
        'quant_ladder("Q9")': "unknown quantization 'Q9'",
        'quant_ladder("F16")': "no quantization other than the baseline F16",
        'quant_ladder("Q8_0", base="F16")': "unknown argument 'base'; did you mean 'baseline'?",
        'quant_ladder("Q8_0", baseline="F17")': "unknown quantization 'F17'",
        'quant_ladder("Q8_0", baseline="fake:F16")': "unknown quantization 'fake:F16'",
        'quant_ladder("fake:Q9")': "unknown quantization 'Q9'",
        'quant_ladder("Q6_K")': "no file for quantization Q6_K",
    }
    project.rejects(marked("ladder"), messages, in_setup=True)
    unused = {
        'quant_ladder("Q8_0")': "quant_ladder marker on a test that uses none of its fixtures",
    }
    project.rejects(marked(), unused, in_setup=True)
    missing = {'model("fake")': "the fixture `ladder` needs a quant_ladder or kv_ladder marker"}
    project.rejects(marked("ladder"), missing, in_setup=True)
