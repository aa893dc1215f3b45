"""Gates of two llama-servers whose candidate has one fault that only its own requests show."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_asperf.cli import app
from tests.preloaded_server import write_preloaded

pytestmark = pytest.mark.serial


@pytest.fixture
def gate(
    tmp_path: Path,
    program: Callable[[str], Path],
    session_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:
    """Gates a server with one kind of harm, or none, and returns the output."""
    tools = program("llama-server").parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))

    def run(how: str, *workloads: str, settings: str = "threads=1") -> str:
        folder = write_preloaded(tmp_path / how, tools, how) if how else tools
        builds = [f"{path},{settings}" for path in (tools, folder)]
        words = [
            "--engine",
            "llama_server",
            "--model",
            "asperf-target:Q4_K_M",
            "--tolerance",
            "40%",
        ]
        words += ["--workload", ",".join(workloads), "--set", "seed=1"]
        done = CliRunner().invoke(app, ["gate", *builds, *words])
        sys.stdout.write(done.output)
        return " ".join(done.stdout.split())

    return run


def test_equal_servers_pass(gate: Callable[..., str]) -> None:
    """Their conversations have the logits of fresh prompts."""
    printed = gate("", "logits@turns")
    assert "PASS logits@turns mean KLD 0.0" in printed
    assert "1 PASS in" in printed


def test_a_server_that_keeps_cells_of_another_conversation_fails(gate: Callable[..., str]) -> None:
    """It is right if a prompt is the first of a slot."""
    printed = gate("stale_cells", "logits@turns", "logits")
    assert "FAIL logits@turns mean KLD" in printed
    assert "look for what the cache keeps of an earlier prompt" in printed
    assert "PASS logits mean KLD" in printed


def test_a_server_that_stays_slow_after_a_long_prompt_fails(gate: Callable[..., str]) -> None:
    """Without the long prompt it is as fast as the baseline."""
    printed = gate("slow_after_a_long_prompt", "tg64", "tg64@after1")
    assert "PASS tg64 " in printed
    assert "FAIL tg64@after1 " in printed


def test_a_server_that_dies_fails(gate: Callable[..., str]) -> None:
    """The check names the signal, and the next check has another process."""
    printed = gate("dies", "tg64@after20", "logits@turns")
    assert "FAIL tg64@after20 " in printed
    assert "SIGABRT" in printed


def test_sampling_is_timed(gate: Callable[..., str]) -> None:
    """Slower with top-k off alone; by a grammar it is as fast as the baseline."""
    printed = gate("slow_without_top_k", "tg64", "tg64@topk0", "tg64@grammar")
    assert "PASS tg64 " in printed
    assert "FAIL tg64@topk0 " in printed
    assert "PASS tg64@grammar " in printed


def test_a_reply_that_the_grammar_does_not_allow_fails(gate: Callable[..., str]) -> None:
    """The candidate alone ignores it."""
    printed = gate("ignores_grammar", "tg64@grammar")
    assert "FAIL tg64@grammar " in printed
    assert "does not allow" in printed


@pytest.mark.parametrize("n_tokens", [4, 64])
def test_sampling_that_chooses_the_likeliest_token_fails(
    gate: Callable[..., str], n_tokens: int
) -> None:
    """The server's own log-probabilities say how often another one is sampled.

    Each try of a failed candidate times one answer, which is too short or predictable to show it.
    """
    printed = gate("samples_the_likeliest", f"tg{n_tokens}@topk0")
    assert f"FAIL tg{n_tokens}@topk0 " in printed
    assert "sampled tokens are the likeliest ones, of which" in printed


def test_vectors_of_a_server_that_is_started(gate: Callable[..., str]) -> None:
    """They need the server's own options, and without them the error has its words."""
    # Without a unified cache, 0.5.0-dev pools several texts of other lengths wrongly.
    embedding = "threads=1,server_args=--embeddings --pooling mean --kv-unified"
    assert "PASS embeddings " in gate("", "embeddings", settings=embedding)
    assert "--embeddings" in gate("", "embeddings")
