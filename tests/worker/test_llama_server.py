"""llama-server itself, built from the sources that llama-cpp-python ships."""

import math
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild, RawRun, Worker
from pytest_asperf.engine_process.pair import likeliest_tokens, served_generation
from pytest_asperf.engine_process.ways import replied_together
from pytest_asperf.measure.lone_server import TimedServer
from pytest_asperf.modelfiles.hub_cache import shipped_corpus
from pytest_asperf.testing import check_engine
from pytest_asperf.worker.engine import Asked
from pytest_asperf.worker.openai_engine import OpenAiEngine
from pytest_asperf.worker.server_process import ServerProcess
from tests.conftest import Draft

TEXT = shipped_corpus().read_text("utf-8")[:8000]
TTFT = parse_workload("ttft256", where="test")


@pytest.fixture(scope="session")
def server(program: Callable[[str], Path]) -> EngineBuild:
    """llama-server."""
    return EngineBuild("llama_server", Path(sys.executable), program("llama-server").parent)


def test_it_conforms(server: EngineBuild, draft: Draft) -> None:
    """It answers every kind of request of one user and of two."""
    check_engine(server, draft("F16"), EngineSettings(threads=1, parallel=2))


@pytest.mark.parametrize("name", ["tg32", "ttft256", "pp64+tg64", "tg32@grammar", "ttft64@c4"])
def test_its_answers_can_be_continued(server: EngineBuild, draft: Draft, name: str) -> None:
    """A prompt that goes on with the first part of an answer has the rest as its answer."""
    workload = parse_workload(name, where="test")
    with Worker(server) as worker:
        worker.load("m", draft("F16"), EngineSettings(threads=1))

        def time() -> RawRun:
            return worker.serve("m", TEXT, workload)

        coin = Random(1)  # noqa: S311  # repeatable
        examined = TimedServer(worker, "m", time).examine(time(), workload, coin)
    assert examined is not None
    assert examined.findings == ()
    assert examined.is_continued


def test_what_it_runs_is_said(server: EngineBuild, draft: Draft) -> None:
    """Slots, context, cache and speculation are its own words, device and KV types its log's."""
    settings = EngineSettings(
        threads=1, parallel=2, type_k="q8_0", flash_attn="on", server_args="--cache-ram 0 -c 1024"
    )
    with Worker(server) as worker:
        loaded = worker.load("m", draft("F16"), settings)
        run = worker.serve("m", TEXT, TTFT)
    assert loaded.served is not None
    for word in ("slots 2", "context of a slot 512", "prompt cache disabled", "speculation off"):
        assert word in loaded.served
    assert (loaded.threads, run.context.type_k, run.context.flash_attn) == (1, "q8_0", "on")
    assert loaded.weights_mib
    assert run.peak_rss_bytes > loaded.size_bytes


def test_a_prompt_that_it_has_seen_is_refused(
    server: EngineBuild, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prompt cache is on by default, and new prompts do not meet it."""
    from pytest_asperf.worker import served_prompts  # of another process otherwise
    from pytest_asperf.worker.llama_server_engine import LlamaServerEngine  # same
    from pytest_asperf.worker.served_model import ServedModel  # same

    model = LlamaServerEngine(str(server.tools)).load(str(draft("F16")), {"threads": 1})
    assert isinstance(model, ServedModel)
    asked = Asked("ttft", 256, 0, 1, TEXT)
    new = [model.serve(asked).requests[0]["n_cached"] for _ in range(2)]
    seen = model.prompts.draw(TEXT, 256)
    monkeypatch.setattr(served_prompts.Prompts, "draw", lambda *_: seen)
    again = [model.serve(asked).requests[0] for _ in range(2)]
    model.close()
    assert max(new) < 8
    assert again[0]["n_cached"] < 8
    (found,) = guards.served_requests(
        guards.ServedWork(n_users=1, times_gaps=False, timed_ns=math.inf),
        [ServedRequest(**request) for request in again],
    )
    assert found.guard == "cached-prompt"
    assert found.consequence is guards.Consequence.INVALID


def test_a_warm_prompt_is_cached_where_there_is_a_cache(server: EngineBuild, draft: Draft) -> None:
    """Each of two users finds the prompt that it has just sent; without a cache neither does."""
    warm = parse_workload("ttft256@c2@warm", where="test")
    with Worker(server) as worker:
        for options, is_cached in (("--cache-ram 64", True), ("--no-cache-prompt", False)):
            worker.load("m", draft("F16"), EngineSettings(parallel=2, server_args=options))
            requests = worker.serve("m", TEXT, warm).requests
            worker.unload("m")
            found = guards.served_requests(
                guards.ServedWork(n_users=2, is_warm=True, times_gaps=False, timed_ns=math.inf),
                requests,
            )
            # Our own share of so short a prompt can be too much: another guard's matter.
            assert ("not-reused" in {one.guard for one in found}) is not is_cached


def test_a_restart_between_two_runs_is_found(
    server: EngineBuild, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are numbered from its start, so a server that began again is another one."""
    tools, model = str(server.tools), str(draft("F16"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr("pytest_asperf.worker.server_process._free_port", lambda: port)
    asked = Asked("ttft", 64, 0, 1, TEXT)

    def start() -> ServerProcess:
        where = ("--host", "127.0.0.1", "--port", str(port))
        command = (Path(tools) / "llama-server", ("-m", model, "-t", "1", *where))
        return ServerProcess("llama-server", lambda _: command, "/health")

    first = start()
    served = OpenAiEngine(f"http://127.0.0.1:{port}").load("served", {})
    served.serve(asked)
    served.serve(asked)
    sound = served.context["states"]
    first.end()
    second = start()
    served.serve(asked)
    second.end()
    assert guards.restarted(*sound) is None
    found = guards.restarted(*served.context["states"])
    assert found is not None
    assert "tasks_total" in found.found


def test_its_scores_are_the_librarys(server: EngineBuild, draft: Draft) -> None:
    """Log-probabilities of its next tokens give the NLL that its library computes in a batch."""
    library = EngineBuild("llama_cpp", Path(sys.executable))
    found = []
    for build in (server, library):
        with Worker(build) as worker:
            worker.load("m", draft("F16"), EngineSettings(threads=1))
            tokens = worker.tokenize("m", TEXT)[:96]
            ((score, _),) = worker.score(["m"], tokens, 64).values()
            found.append((tokens, score.nll))
    (of_server, of_library) = found
    assert of_server[0] == of_library[0]
    # Tokens one by one and in a batch: 0.016 nats at most was seen, of a token with 11.5.
    assert of_server[1] == pytest.approx(of_library[1], abs=0.05)
    assert fmean(of_server[1]) == pytest.approx(fmean(of_library[1]), abs=0.005)


def test_users_who_ask_at_once_get_what_each_gets_alone(server: EngineBuild, draft: Draft) -> None:
    """Replies to four users at once have the distributions of equal tokens requested alone."""
    with Worker(server) as worker:
        worker.load("m", draft("F16"), EngineSettings(threads=1, parallel=4))
        tokens = worker.tokenize("m", TEXT)
        prompts = [[tokens[0], *tokens[start : start + 40]] for start in (1, 41, 81, 121)]
        requests = [(prompt, 8) for prompt in prompts]
        among, alone, *_ = replied_together(worker, "m", requests, 4)
    klds = [
        guards.kld(one, other)
        for pair in zip(alone, among, strict=True)
        for one, other in zip(*pair, strict=True)
    ]
    assert len(klds) == 32
    assert max(klds) < 0.001


def test_a_running_server_is_scored_too(server: EngineBuild, draft: Draft) -> None:
    """A llama-server at an address shows as much as an engine of its own."""
    command = (Path(str(server.tools)) / "llama-server", ["-m", str(draft("F16")), "-t", "1"])
    running = ServerProcess(
        "llama-server", lambda port: (command[0], [*command[1], "--port", str(port)]), "/health"
    )
    try:
        address = EngineBuild("openai", Path(sys.executable), url=str(running.endpoint))
        with Worker(address) as worker, Worker(server) as started:
            worker.load("m", Path("served"), EngineSettings())
            started.load("m", draft("F16"), EngineSettings(threads=1))
            tokens = worker.tokenize("m", TEXT)[:48]
            scores = [w.score(["m"], tokens, 32)["m"][0].nll for w in (worker, started)]
    finally:
        running.end()
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_its_own_drafts_are_counted_and_checked(server: EngineBuild, draft: Draft) -> None:
    """With a draft model it reports the number of accepted tokens, and each is the likeliest."""
    options = f"-md {draft('Q8_0')} --spec-type draft-simple"
    with Worker(server) as worker:
        worker.load("m", draft("F16"), EngineSettings(threads=1, server_args=options))
        prompt = worker.tokenize("m", TEXT)[:40]
        reply, gaps_ns, _ = served_generation(worker, "m", prompt, 32)
        _, gaps = likeliest_tokens(worker, "m", prompt, reply.tokens)
    assert 0 < reply.accepted <= reply.drafted
    counts = (reply.drafted, reply.accepted, reply.emitted)
    assert guards.false_drafts(*counts, gaps_ns) is None
    assert len(gaps) == 32
    assert max(gaps) < 0.01


@pytest.mark.serial
def test_drafts_that_were_not_accepted_show_in_the_gaps(server: EngineBuild, draft: Draft) -> None:
    """Tokens of a server without a draft come one by one: 16 of 32 cannot have been accepted."""
    replies = []
    # On a busy machine a few gaps may have most of one reply's time. A server streams one.
    for _ in range(4):
        with Worker(server) as worker:
            worker.load("m", draft("F16"), EngineSettings(threads=1))
            prompt = worker.tokenize("m", TEXT)[:40]
            replies.append(served_generation(worker, "m", prompt, 32))
    for reply, gaps_ns, _ in replies:
        assert guards.false_drafts(reply.drafted, reply.accepted, 32, gaps_ns) is None
        assert any(gaps_ns)
    found = [guards.false_drafts(20, 16, 32, gaps_ns) for _, gaps_ns, _ in replies]
    said = [one.found for one in found if one]
    assert any("16 of 32 tokens accepted, where the 16 longest gaps" in one for one in said)
    assert guards.false_drafts(16, 20, 32) is not None
    assert guards.false_drafts(40, 32, 32) is not None
