"""The text behind a figure: rejected if it is none, and named next to every PPL."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.plugin.conftest import Project

TEXT = "def area(width, height):\n    return width * height\n"
EVERY_USE = """
@pytest.mark.quant("Q8_0")
def test_throughput(throughput):
    assert throughput("tg32") >= 1

@pytest.mark.quant("Q8_0")
def test_perplexity(perplexity):
    perplexity.ppl.estimate

@pytest.mark.quant("Q8_0")
def test_memory(memory):
    memory(600).kv.estimate
"""


def _told(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_an_empty_corpus_is_an_error_wherever_it_is_used(project: Project, text: str) -> None:
    """Nothing is measured on it, and the message names the file."""
    (project.path / "corpus.txt").write_text(text)
    project.test(EVERY_USE)
    result = project.run()
    result.assert_outcomes(failed=3)
    told = result.stdout.str()
    assert told.count(f"the corpus {project.path / 'corpus.txt'} of fake has no text in it") >= 3


def test_a_corpus_of_a_few_bytes_is_no_text_to_generate_from(project: Project) -> None:
    """It would be repeated over and over, so that nothing real is measured."""
    (project.path / "corpus.txt").write_text("a b c")
    project.test(EVERY_USE)
    result = project.run()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*corpus.txt gives 6 tokens, and tg32 needs 3*"])


def test_a_chunk_of_text_may_be_repeated(project: Project) -> None:
    """A workload longer than the corpus is fed with it again."""
    (project.path / "corpus.txt").write_text(TEXT * 12)
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(throughput):\n    throughput("pp2048").estimate\n'
    )
    project.run().assert_outcomes(passed=1)


def test_each_ppl_names_its_text(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """In the JSON, in the run record of measurement and verdict, and in the legend, once."""
    project.test("""
@pytest.mark.quant("Q8_0")
def test_it(perplexity):
    assert_ppl_delta(perplexity, above="50%")
""")
    level, verdict = rows("--asperf-chunks=7")
    text = (project.path / "corpus.txt").read_text()
    told = f"corpus.txt, sha256 {_told(text)}, chunks 1 to 7 of 39, of 512 tokens"
    assert level["text"] == {
        "name": "corpus.txt",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "n_chunks": 7,
        "n_chunks_total": 39,
        "n_ctx": 512,
    }
    assert level["baseline"]["model"] == "fake:F16"
    assert ["text", told] in level["facts"]
    assert ["text", told] in verdict["facts"]
    project.run("--asperf-chunks=7").stdout.fnmatch_lines([f"*text: {told}"])
    project.run("--asperf-chunks=7", "-v").stdout.fnmatch_lines([f"E *text: {told}"])


def test_a_gate_of_ppl_names_its_text(project: Project) -> None:
    """Its chunks are drawn at random, from those that it names."""
    project.test(
        '@pytest.mark.model("fake:F16")\ndef test_it(gate):\n'
        '    assert_no_regression(gate("ppl"), ppl_below="1%")\n'
    )
    report = project.path / "gate.json"
    project.run("--asperf-candidate=current", f"--asperf-report=json:{report}")
    (verdict,) = json.loads(report.read_text())["rows"]
    (told,) = [text for label, text in verdict["facts"] if label == "text"]
    assert told.startswith("corpus.txt, sha256 ")
    assert told.endswith("chunks 1 to 6 of 39, of 512 tokens")


def test_levels_on_two_texts_are_not_compared(project: Project) -> None:
    """One file, scored on another text, is other work."""
    (project.path / "other.txt").write_text(TEXT.replace("area", "size") * 400)
    project.config(
        '[models.moved]\nfiles = { F16 = "f16.json", Q4_K_M = "q4.json" }\ncorpus = "other.txt"\n'
    )
    project.test("""
kept = {}

@pytest.mark.quant("Q8_0")
def test_one(perplexity):
    kept["one"] = perplexity
    assert perplexity.ppl > 1

@pytest.mark.model("moved")
@pytest.mark.quant("Q4_K_M")
def test_other(perplexity):
    assert kept["one"].kld < perplexity.kld
""")
    result = project.run()
    result.stdout.fnmatch_lines(["test_it.py .V *", "! *tokens sha256 *"])
    result.stdout.fnmatch_lines(["*text: corpus.txt, * · text: other.txt, *"])


def test_few_chunks_decide_nothing(project: Project) -> None:
    """No assertion of PPL or KLD passes or fails, in a sweep or in a gate, and five are needed."""
    project.test("""
two = pytest.mark.quant_ladder("Q8_0", "Q4_K_M")

@pytest.mark.quant("Q4_K_M")
def test_above(perplexity):
    assert_ppl_delta(perplexity, above="1%")

@pytest.mark.quant("Q4_K_M")
def test_below(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@two
def test_monotonic(ladder):
    assert_monotonic(ladder, "kld")

@two
def test_pareto(ladder):
    assert_pareto_optimal(ladder, "Q8_0", objectives=("ppl",))

@two
def test_degrades(ladder):
    assert ladder["Q8_0"].kld < ladder["Q4_K_M"].kld

@two
def test_equivalent(ladder):
    assert 0.1 <= ladder["Q8_0"].ppl / ladder["Q4_K_M"].ppl <= 10

@pytest.mark.model("fake:F16")
def test_gate(gate):
    assert_no_regression(gate("ppl"), ppl_below="1%")
""")
    result = project.run("--asperf-chunks=4", "--asperf-candidate=current")
    result.stdout.fnmatch_lines(["test_it.py IIIIIII *"])
    told = result.stdout.str()
    assert told.count("4 chunks give no interval") >= 3
    assert told.count("measure 5 chunks: --asperf-chunks=5") >= 3
    assert "score 5 chunks at least: --asperf-chunks=all" in told


def test_five_chunks_decide(project: Project) -> None:
    """From there on an assertion may pass."""
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(perplexity):\n'
        '    assert_ppl_delta(perplexity, below="1%")\n'
    )
    project.run("--asperf-chunks=5").assert_outcomes(passed=1)
