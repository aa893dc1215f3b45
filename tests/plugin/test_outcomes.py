import re
from typing import Any

import pytest
from _pytest._code.code import TracebackEntry

from tests.harmful_interpreter import write_interpreter
from tests.plugin.conftest import Project

#: The figure itself as the limit: no interval is above or below it.
FOUR = """
@pytest.mark.quant("Q8_0")
def test_pass(perplexity):
    assert assert_ppl_delta(perplexity, below="1%").outcome == Outcome.PASS

@pytest.mark.quant("Q4_K_M")
def test_fail(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.quant("Q8_0")
def test_open(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)

@pytest.mark.quant("F16")
def test_broken(throughput):
    throughput("tg8").estimate

@pytest.mark.quant("Q8_0")
def test_after_it(throughput):
    throughput("tg8").estimate
"""


def test_four_outcomes_side_by_side(project: Project) -> None:
    """Each has its letter, its section and its place in the last line, and the session goes on."""
    project.script("f16", faults={"generate": "crash"})
    project.test(FOUR)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "test_it.py .FIV. *",
            "*= FAILURES =*",
            "*_ test_fail _*",
            "*_ INCONCLUSIVE test_it.py::test_open _*",
            "*_ INVALID test_it.py::test_broken _*",
            "*= asperf =*",
            "✓  ΔPPL fake:Q8_0 vs F16 *[[]*] * < 1 % *",
            "[?]  ΔPPL fake:Q8_0 vs F16 *[[]*] * test_open",
            "!  test_it.py::test_broken  scripted generate fake:F16: *SIGSEGV *",
            "✗  ΔPPL fake:Q4_K_M vs F16  *, +* % [[]*] * < 1 % * test_fail",
            "4 assertions: 1 PASS, 1 FAIL, 1 INCONCLUSIVE, 1 INVALID*",
            "FAILED test_it.py::test_fail - ΔPPL fake:Q4_K_M vs F16 below 1 %",
            "* 1 failed, 2 passed, 1 inconclusive, 1 invalid in *",
        ]
    )


def test_words_and_colours(project: Project) -> None:
    """On a terminal INCONCLUSIVE is yellow and INVALID purple."""
    project.script("f16", faults={"generate": "crash"})
    project.test(FOUR)
    text = project.run("-v", "--color=yes").stdout.str()
    assert re.search(r"\x1b\[33mINCONCLUSIVE [^\x1b]*\x1b\[0m", text)
    assert re.search(r"\x1b\[35mINVALID [^\x1b]*\x1b\[0m", text)
    for colour, mark in ((32, "✓"), (31, "✗"), (33, "?"), (35, "!")):
        assert f"\x1b[{colour}m{mark}\x1b[0m" in text


def test_a_failure_reads_like_a_lab_note(project: Project) -> None:
    """Assertion, measured, interval, threshold, run record, remedy: in this order, once each."""
    project.test(FOUR)
    result = project.run("-k", "fail", "-v")
    result.stdout.fnmatch_lines(
        [
            '>       assert_ppl_delta(perplexity, below="1%")',
            "E *FAIL: the assertion is shown false",
            "E         assertion:  ΔPPL fake:Q4_K_M vs F16 below 1 %",
            "E         measured:   +* % [[]*, *]",
            "E         interval:   90 % two-sided*6 chunks",
            "E         threshold:  below 1 %",
            "E         ran (live): model: fake:Q4_K_M",
            "E                     type: scripted",
            "E                     sha256: *",
            "E                     engine: scripted 1, ggml commit unknown",
            "E         what to do: *",
            "test_it.py:*: VerdictError",
        ]
    )
    assert result.stdout.str().count("  assertion: ") == 1
    assert "assertions.py" not in result.stdout.str()


#: By fault: its message.
TOLD_OF_FAULTS = {
    "crash": "the engine's process was ended by SIGSEGV",
    "killed": "the engine's process was ended by SIGKILL",
    "hang": "no answer within 0.5 s, the process was ended",
    "garbage": "an unreadable answer",
}
FAULTY = [
    (operation, fault) for operation in ("load", "tokenize", "generate") for fault in TOLD_OF_FAULTS
]
#: A test of each, on a model named after its fault, and one behind it. Only the endless one has the
#: short deadline.
IN_TURN = f"""
from pytest_asperf.engine_process import Worker

@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    call = Worker.call

    def hurried(self, op, *, timeout_s=None, **args):
        hangs = args.get("model") == f"{{op}}-hang:F16"
        return call(self, op, timeout_s=0.5 if hangs else timeout_s, **args)

    monkeypatch.setattr(Worker, "call", hurried)

models = [model for one in {FAULTY} for model in ("-".join(one) + ":F16", "fake:Q8_0")]

@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=pytest.mark.model(model)) for n, model in enumerate(models)]
)
def test_it(throughput, n):
    throughput(f"tg{{n + 8}}").estimate
"""


def test_a_broken_engine_is_a_result(project: Project) -> None:
    """For any fault at any time, its test is INVALID and the next one is measured."""
    models = []
    for operation, fault in FAULTY:
        name = f"{operation}-{fault}"
        project.script(name, faults={operation: fault})
        models.append(f"[models.{name}]\nfiles = {{ F16 = '{name}.json' }}\ncorpus = 'corpus.txt'")
    project.config("\n".join(models))
    project.test(IN_TURN)
    result = project.run()
    result.stdout.fnmatch_lines([f"test_it.py {'V.' * len(FAULTY)} *"])
    for operation, fault in FAULTY:
        result.stdout.fnmatch_lines(
            [
                f"scripted {operation} {operation}-{fault}:F16: {TOLD_OF_FAULTS[fault]}*",
                "  why it matters: *",
                "  what to do: *",
                "test_it.py:*: WorkerError",
            ]
        )
    for n in range(1, 2 * len(FAULTY), 2):
        result.stdout.fnmatch_lines([f"* tg{n + 8} fake:Q8_0 *"])


_ASSERTS = """
def chosen(request):
    if request["op"] != "generate":
        return ""
    lines = ["ggml.c:42: GGML_ASSERT(ne0 == 1) failed", *["  a frame"] * 500]
    os.write(2, os.linesep.join(lines).encode())
    return "aborts"
"""


def test_the_line_that_explains_a_crash_is_shown(project: Project) -> None:
    """It is in the block of few lines, in the table of Markdown and in JSON."""
    python = write_interpreter(project.path / "python", _ASSERTS)
    test = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'
    project.test(test)
    files = [f"--asperf-report={name}:r.{name}" for name in ("json", "md")]
    result = project.run(f"--asperf-python={python}", *files)
    shown = "was ended by SIGABRT; its log has: ggml.c:42: GGML_ASSERT(ne0 == 1) failed"
    result.stdout.fnmatch_lines([f"*{shown}", "    ggml.c:42: GGML_ASSERT(ne0 == 1) failed"])
    assert result.stdout.str().count("  a frame") == 0
    assert shown in (project.path / "r.json").read_text()
    assert "GGML\\_ASSERT" in (project.path / "r.md").read_text()


def test_the_deadline_is_the_configured_one(project: Project) -> None:
    """A call has the time that asperf.toml gives it."""
    project.config(call_timeout_s=1)
    project.script("f16", faults={"generate": "hang"})
    project.test(FOUR)
    result = project.run("-k", "broken")
    # On a loaded machine the start of its process may already last longer.
    result.stdout.fnmatch_lines(["scripted *: no answer within 1 s, the process was ended*"])


def test_an_engine_that_crashes_while_scoring(project: Project) -> None:
    """A measurement that a fixture makes is INVALID in the set-up of its test."""
    project.script("q8", faults={"score": "crash"})
    project.test(FOUR)
    result = project.run("-k", "pass or after")
    result.stdout.fnmatch_lines(["test_it.py V. *", "!  test_it.py::test_pass *SIGSEGV *"])


def test_numbers_that_are_none(project: Project) -> None:
    """NaN from a model is INVALID, never a figure."""
    project.script("q8", noise=float("inf"))
    project.test(FOUR)
    result = project.run("-k", "pass or after")
    result.stdout.fnmatch_lines(
        ["test_it.py V. *", "*non-finite*", "  what to do: *NaN or infinity*"]
    )


def test_a_refusal_is_an_error_and_not_invalid(project: Project) -> None:
    """Nothing was measured if the engine raised, so no measurement is broken."""
    project.script("f16", faults={"generate": "refuse"})
    project.test(FOUR)
    result = project.run("-k", "broken or after")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["scripted generate fake:F16: the engine reported an error (scripted): *"]
    )


def test_names_that_modules_share_are_told_apart(project: Project) -> None:
    """Two broken tests of one name are two lines."""
    project.script("f16", faults={"generate": "crash"})
    for name in ("test_a", "test_b"):
        project.test(
            '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput().estimate\n', name
        )
    result = project.run()
    result.stdout.fnmatch_lines(
        ["!  test_a.py::test_it *", "!  test_b.py::test_it *", "2 assertions: 2 INVALID*"]
    )


@pytest.mark.parametrize("style", ["short", "line", "native", "long", "no"])
def test_tracebacks_of_other_styles(project: Project, style: str) -> None:
    """With a traceback style pytest prints it, and the list in any case."""
    project.script("f16", faults={"generate": "crash"})
    project.test(FOUR)
    result = project.run(f"--tb={style}")
    result.stdout.fnmatch_lines(["!  test_it.py::test_broken *SIGSEGV*"])
    assert "INTERNALERROR" not in result.stdout.str()


def test_no_source_of_ours_is_read_for_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is shown, and pytest would parse a module for each frame of each error."""
    read: list[str] = []
    getsource = TracebackEntry.getsource

    def noted(entry: TracebackEntry, *args: Any) -> Any:
        read.append(str(entry.path))
        return getsource(entry, *args)

    monkeypatch.setattr(TracebackEntry, "getsource", noted)
    project.script("f16", faults={"load": "crash"})
    project.test("""
@pytest.mark.model("fake:F16")
def test_broken(throughput):
    throughput("tg8").estimate

@pytest.mark.model("fake:F16", depth=1)
def test_bad_input(throughput):
    pass

def test_other():
    assert False
""")
    project.run().assert_outcomes(failed=1, errors=1)
    assert [path.rpartition("/")[2] for path in read] == ["test_it.py"]
