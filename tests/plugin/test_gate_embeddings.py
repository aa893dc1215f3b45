"""Vectors of texts are those of the baseline, alone and in a batch, or the candidate is a FAIL."""

import pytest

from pytest_asperf.engine_process import EngineBuild
from tests.encoder_files import write_encoder
from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged
from tests.served import WordServer

GATE = """
@pytest.mark.model("{model}", threads=1)
def test_gate(gate):
    assert_no_regression(gate({names}))
"""


@pytest.fixture
def encoder(live: Project) -> str:
    """An encoder whose random weights distinguish texts."""
    return str(write_encoder(live.path / "encoder.gguf"))


def test_an_encoder_in_equal_builds_passes(live: Project, encoder: str) -> None:
    """Its vectors and its memory are compared, and the pooling is the file's."""
    live.test(GATE.format(model=encoder, names="'embeddings', 'memory'"))
    result = live.run("--asperf-candidate=current", "-v", "-rA")
    result.stdout.fnmatch_lines(["✓ *gate embeddings *cosine 1.000000*", "✓ *gate memory *"])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("other_pooling", "smallest cosine 0.*"),
        ("first_vector", "smallest cosine 1.000000 from the baseline, 0.* in a batch"),
        ("longer_vectors", "smallest cosine 1.000000 *lengths changed by 100 % at most"),
        ("longer_second", "* in a batch *lengths changed by 50 % at most"),
        ("dead_number", "one number by * % of its spread over texts"),
        ("turned_if_long", "smallest cosine -1.000000 from the baseline"),
        ("turned_if_short", "smallest cosine -1.000000 from the baseline"),
        ("zero_vectors", "a vector is zero"),
        ("nan_vectors", "a vector has numbers that are not finite"),
    ],
)
@pytest.mark.parametrize("kind", ["encoder", "causal"])
def test_other_vectors_fail(live: Project, encoder: str, kind: str, how: str, what: str) -> None:
    """Another pooling, the first text's vector for the second one, and no vector at all."""
    model = encoder if kind == "encoder" else "asperf-draft"
    live.test(GATE.format(model=model, names="'embeddings'"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines([f"*{what}*", "*1 FAIL*"])


@pytest.mark.parametrize(
    ("how", "what"),
    [("zero_vectors", "is zero"), ("nan_vectors", "has numbers that are not finite")],
)
def test_a_baseline_without_vectors_is_invalid(
    live: Project, encoder: str, how: str, what: str
) -> None:
    """Zero or NaN in both builds says nothing of the candidate."""
    live.test(GATE.format(model=encoder, names="'embeddings'"))
    broken = write_sabotaged(live.path, how)
    result = live.run(f"--asperf-baseline={broken}", f"--asperf-candidate={broken}", "-v")
    result.stdout.fnmatch_lines([f"*a vector {what}*", "*1 INVALID*"])


TIMED = GATE.replace("))", '), tolerance="30%")')


@pytest.mark.serial
def test_an_encoder_is_timed(live: Project, encoder: str) -> None:
    """Equal builds PASS."""
    live.test(TIMED.format(model=encoder, names="'pp256'"))
    live.run("--asperf-candidate=current", "-v").assert_outcomes(passed=1)


def test_a_slower_encoder_fails(live: Project, encoder: str) -> None:
    """It reads the same texts in three times the time."""
    live.test(TIMED.format(model=encoder, names="'pp256'"))
    slower = live.run("--asperf-candidate=current,slow_by=2", "-v")
    slower.stdout.fnmatch_lines(["✗ *gate pp256 *slower*"])


def test_an_encoder_that_reads_the_end_of_a_text_fails(live: Project, encoder: str) -> None:
    """Its vector is the same for other texts."""
    live.test(TIMED.format(model=encoder, names="'pp256'"))
    partly = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'end_of_text')}", "-v")
    partly.stdout.fnmatch_lines(["*does not change the vector*", "*1 FAIL*"])


def test_the_rate_of_an_encoder(live: Project, encoder: str) -> None:
    """It is a quantity of one build, and decoding raises."""
    live.test(f"""
pytestmark = pytest.mark.model("{encoder}", threads=1)

def test_rate(throughput):
    assert throughput("pp256") >= "100 tok/s"

def test_decoding(throughput):
    assert throughput("tg16") >= "1 tok/s"
""")
    result = live.run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*which does not continue a text*"])


@pytest.mark.parametrize("model", ["asperf-draft", "asperf-draft:Q4_K_M"])
def test_a_causal_model_is_pooled_by_the_mean(live: Project, model: str) -> None:
    """Kernels for one text and for several round differently, by less than is accepted."""
    live.test(GATE.format(model=model, names="'embeddings'"))
    live.run("--asperf-candidate=current,flash_attn=off", "-v").assert_outcomes(passed=1)
    live.run("--asperf-candidate=current,n_ubatch=32", "-v").assert_outcomes(passed=1)


def test_a_reranker_is_refused(live: Project) -> None:
    """It gives a score of two texts."""
    model = write_encoder(live.path / "reranker.gguf", pooling=4)
    live.test(GATE.format(model=model, names="'embeddings'"))
    live.run("--asperf-candidate=current").stdout.fnmatch_lines(["*a reranker gives a score*"])


def test_other_checks_of_an_encoder_are_refused(live: Project, encoder: str) -> None:
    """They are about the next token; the message names the check that is not."""
    live.test(GATE.format(model=encoder, names="'ppl'"))
    result = live.run("--asperf-candidate=current")
    result.stdout.fnmatch_lines(["*which does not continue a text*", "*--workload embeddings*"])


def test_servers(live: Project) -> None:
    """Texts in one request, and each in its own, of two servers."""
    live.config(engine="openai", default_model="fake")
    live.test("def test_gate(gate):\n    assert_no_regression(gate('embeddings'))\n")
    base, candidate = (f"http://{WordServer().endpoint.authority}" for _ in range(2))
    result = live.run(f"--asperf-baseline={base}", f"--asperf-candidate={candidate}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate embeddings *"])


def test_mlx_is_refused(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001
    """The message names the engines that have it."""
    live.config(engine="mlx", default_model="asperf-draft", call_timeout_s=120)
    live.test("def test_gate(gate):\n    assert_no_regression(gate('embeddings'))\n")
    live.run("--asperf-candidate=current").stdout.fnmatch_lines(
        ["*measure it on llama_cpp or llama_server or openai*"]
    )
