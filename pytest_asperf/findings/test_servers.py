"""Findings about servers, on yours: a session's server, or two URLs that a gate compares.

`--asperf-engine=llama_server --asperf-tools=FOLDER` measures llama.cpp's own, and
`--asperf-engine=openai --asperf-url=URL` any other. Claims about two programs are gates:
`--asperf-baseline=URL --asperf-candidate=URL`.
"""

import pytest

from pytest_asperf import Gate, Latency, Throughput

pytestmark = pytest.mark.model("@target")

_SERVERS = ("llama_server", "llama_cpp_server", "mlx_server", "openai")
_MISSING = (
    "{} is no server: --asperf-engine=llama_server --asperf-tools=FOLDER, or "
    "--asperf-engine=openai --asperf-url=URL"
)


@pytest.fixture
def of_server(throughput: Throughput) -> Throughput:
    """The throughput of a server; skips where the session's engine is none."""
    engine = throughput.variant.engine
    if engine not in _SERVERS:
        pytest.skip(_MISSING.format(engine))
    return throughput


@pytest.mark.finding("several-users-get-more")
def test_four_users_get_more_than_one(of_server: Throughput) -> None:
    """Four requests at once have a higher total rate than one after the other."""
    assert of_server("tg64@c4") > of_server("tg64")


@pytest.mark.finding("batching-doubles")
def test_continuous_batching_doubles_the_rate(of_server: Throughput) -> None:
    """Four requests at once have 2 to 3.4 times the rate of one."""
    assert 2.0 <= of_server("tg64@c4") / of_server("tg64") <= 3.4


@pytest.mark.finding("vllm-mlx-over-llama")
def test_vllm_mlx_generates_faster_than_llama_cpp(gate: Gate) -> None:
    """The candidate, vllm-mlx, generates 21 to 87 % faster than the baseline, llama-server."""
    candidate, baseline = gate.candidate.throughput("tg128"), gate.baseline.throughput("tg128")
    assert 1.21 <= candidate / baseline <= 1.87


@pytest.mark.finding("ollama-mlx-prefill")
@pytest.mark.model("@moe")
def test_ollama_0_19_reads_prompts_faster(gate: Gate) -> None:
    """The candidate, Ollama 0.19 with MLX, reads prompts faster than the baseline, 0.18."""
    assert gate.candidate.throughput("pp512") > gate.baseline.throughput("pp512")


@pytest.mark.finding("ollama-mlx-decode")
@pytest.mark.model("@moe")
def test_ollama_0_19_generates_faster(gate: Gate) -> None:
    """The candidate, Ollama 0.19 with MLX, generates faster than the baseline, 0.18."""
    assert gate.candidate.throughput("tg128") > gate.baseline.throughput("tg128")


@pytest.mark.finding("ollama-mlx-total")
@pytest.mark.model("@moe")
def test_ollama_0_19_takes_less_time_in_all(gate: Gate) -> None:
    """A whole request is faster with the candidate, Ollama 0.19 with MLX, than with 0.18."""
    assert gate.candidate.latency("pp512+tg128") < gate.baseline.latency("pp512+tg128")


@pytest.mark.finding("effective-rate")
@pytest.mark.model("@moe")
def test_most_of_a_long_request_is_waiting_for_the_prompt(latency: Latency) -> None:
    """Tokens per second of waiting are a quarter of TG where prefill is three quarters of it."""
    assert latency("pp8192+tg160").prefill_share >= "75%"
