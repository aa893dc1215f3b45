"""`asperf load` against a server on a real socket."""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.worker.server_process import ServerProcess
from pytest_asperf.worker.serving.load import ClientCost
from tests.commands.conftest import Ended
from tests.served import FAILURES, FailingServer, FirstOnly, words_after
from tests.serving.fake_server import Step, chunked, delta, head, last, serving, sse, streamed

#: So many words after a prompt, by a seed.
Words = Callable[[str, int | None, int], list[str]]
_SMALL = ("--workload", "pp16+tg20", "--requests", "2")


def answer(document: object) -> list[Step]:
    """A reply that is one document."""
    return [head(kind="application/json"), *chunked([json.dumps(document).encode()])]


@pytest.fixture(autouse=True)
def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other measurement of this machine, and assume a fast client."""
    lock = tmp_path / "lock"
    monkeypatch.setattr("pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: lock)
    cost = ClientCost(1, 1, 10_000, 20_000, 20_000)
    monkeypatch.setattr("pytest_asperf.measure.load_sweep.client_cost", lambda _: cost)


class Served:
    """A server of llama-server's paths, with so many slots.

    `tasks` numbers its tasks; `broken` replaces the reply to a completion, `words` its text.
    """

    def __init__(
        self, n_slots: int = 4, broken: list[Step] | None = None, words: Words = words_after
    ) -> None:
        self._words = words
        self.listed = [{"id": "m"}]
        self._slots = threading.Semaphore(n_slots)
        self._n_slots = n_slots
        self._broken = broken
        self.tasks = count(1)
        self.prompts: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Iterable[Step]:
        """The reply to one request."""
        path = request["path"]
        if path == "/props":
            return answer({"build_info": "b1", "total_slots": self._n_slots, "model_path": "m"})
        if path == "/slots":
            return answer([{"id": 0, "id_task": next(self.tasks)}])
        if path == "/v1/models":
            return answer({"data": self.listed})
        if path == "/tokenize":
            return answer({"tokens": request["content"].split()})
        if path != "/v1/completions":
            return [b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"]
        self.prompts.append(request["prompt"])
        return self._broken or self._stream(request)

    def _stream(self, request: dict[str, Any]) -> Iterable[Step]:
        n_prompt, n_output = len(request["prompt"].split()), request["max_tokens"]
        seed = request.get("seed") if request.get("temperature", 1) > 0.01 else None
        words = self._words(request["prompt"], seed, n_output)
        parts: list[Step] = [0.01]
        texts = [delta(f"{word} ") for word in words]
        for part in sse(*texts, last(n_prompt, n_output, model="m")):
            parts += [part, 0.001]
        with self._slots:
            yield from streamed(parts)


def test_a_sweep_draws_the_curve(run_asperf: Callable[..., Ended]) -> None:
    """Each load has a line, in ascending order, and the knee is named."""
    server = Served()
    with serving(server) as listening:
        ended = run_asperf("load", str(listening.endpoint), "--users", "4,1,2", *_SMALL)
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "4"]
    assert "knee: " in lines[-1]
    assert ended.returncode == 0, ended.stdout
    assert len(set(server.prompts[:16])) == 16  # the 14 timed ones, and two before them
    assert "timed work  answers are computed, by " in ended.stdout


def test_an_open_loop_has_rates(run_asperf: Callable[..., Ended]) -> None:
    """Arrivals per second, as JSON with intervals and goodput."""
    with serving(Served()) as server:
        arguments = ("load", str(server.endpoint), "--rate", "50,100", *_SMALL, "--report=json:-")
        ended = run_asperf(*arguments, "--ttft-ms", "0")
    data = json.loads(ended.stdout)
    assert [point["load"] for point in data["loads"]] == [50, 100]
    assert data["loads"][0]["ttft_ms"]["p50"]["point"] >= 10
    assert data["loads"][0]["goodput_per_s"] == 0
    assert data["knee"] is None
    assert data["timed_work"].startswith("answers are computed, by ")
    assert data["guards"] == []


def replayed() -> Words:
    """Answers to any prompt with the same end."""
    kept: dict[str, list[str]] = {}
    return lambda prompt, seed, n: kept.setdefault(prompt[-8:], words_after(prompt, seed, 64))[:n]


def never_the_same() -> Words:
    """Answers of no seed and no prompt."""
    numbers = count()
    return lambda prompt, _, n: words_after(prompt, next(numbers), n)


def partly_right() -> Words:
    """Answers of which the first words are right."""
    return lambda prompt, seed, n: [
        *words_after(prompt, seed, 4),
        *words_after(f"{prompt} noise", seed, n),
    ][:n]


def looping(prompt: str, seed: int | None, n: int) -> list[str]:
    """After 17 right words a loop, which it goes on with, as any model does."""
    (*_, last) = ends = prompt.split()[-4:]
    return [last] * n if len(set(ends)) == 1 else [*words_after(prompt, seed, 17), *"x" * n][:n]


@pytest.mark.parametrize(
    ("words", "guard", "finding"),
    [
        (lambda *_: ["x"] * _[2], "timed-work", "4 requests that differ"),
        (replayed(), "timed-work", "4 requests that differ"),
        (never_the_same(), "timed-work", "of 6 requests that were sent again"),
        (partly_right(), "timed-work", "of 6 answers without sampling"),
        (looping, "timed-work", "of 6 answers without sampling"),
        (lambda *asked: words_after(*asked)[: -asked[2] // 4], "false-account", "the text of an"),
    ],
    ids=["canned", "replayed", "random", "garbage after 4 words", "a loop after 17", "shortened"],
)
def test_answers_that_are_not_computed_are_invalid(
    run_asperf: Callable[..., Ended], words: Words, guard: str, finding: str
) -> None:
    """Those that a server's test finds, with the same words, in the table and in the report."""
    with serving(Served(words=words)) as server:
        arguments = ("load", str(server.endpoint), "--users", "1", *_SMALL, "--report=json:-")
        ended = run_asperf(*arguments)
    assert ended.returncode == 4, ended.stderr
    data = json.loads(ended.stdout)
    assert data["guards"][0].startswith(f"{guard}: {finding}")
    assert data["timed_work"].startswith(finding)


def test_every_user_is_answered(run_asperf: Callable[..., Ended]) -> None:
    """A server that makes up the answers of further users is INVALID, and not with one user."""
    url, codes = f"http://{FirstOnly().endpoint.authority}", []
    for users in ("1", "2"):
        ended = run_asperf("load", url, "--model", "fake", "--users", users, *_SMALL)
        codes.append(ended.returncode)
    assert codes == [0, 4], ended.stdout
    assert "answers without sampling to requests of several users" in _joined(ended.stdout)


def _joined(text: str) -> str:
    return " ".join(text.split())


def python_server(module: str, *arguments: str) -> ServerProcess:
    """A server of this interpreter's environment, ready for requests."""
    program = ("-I", "-m", *module.split(), *arguments, "--port")
    ready = "/v1/models" if "llama" in module else "/health"
    return ServerProcess(module, lambda port: (Path(sys.executable), [*program, str(port)]), ready)


def test_a_server_that_computes_what_it_counts_gets_no_long_prompt(
    run_asperf: Callable[..., Ended], mlx: EngineBuild
) -> None:
    """mlx_lm.server has no tokenizer for users, and ended if a prompt was one with its answer."""
    assert mlx.engine == "mlx"
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    server = python_server("mlx_lm server", "--model", str(draft.hf_folder))
    small = ("--model", str(draft.hf_folder), "--workload", "pp64+tg20", "--requests", "2")
    try:
        ended = run_asperf("load", str(server.endpoint), "--users", "1", *small)
    finally:
        server.end()
    assert "timed work  answers are computed, by " in ended.stdout, ended.stderr
    lengths = re.findall(r"Prompt processing progress: \d+/(\d+)", "\n".join(server.run.log))
    assert 32 < max(map(int, lengths)) < 128


def test_a_server_without_counts_in_its_streams_is_swept(
    run_asperf: Callable[..., Ended], draft_gguf: Path
) -> None:
    """llama-cpp-python's server has a tokenizer, and reports that a reply has its full length."""
    if find_spec("llama_cpp") is None or find_spec("sse_starlette") is None:
        pytest.skip("llama-cpp-python[server] is not installed")
    own = ("--interrupt_requests", "false", "--n_threads", "1")
    server = python_server("llama_cpp.server", "--model", str(draft_gguf), *own)
    try:
        ended = run_asperf("load", str(server.endpoint), "--users", "1", *_SMALL)
    finally:
        server.end()
    assert "timed work  answers are computed, by " in ended.stdout, ended.stderr


def test_a_reply_that_comes_at_once_has_no_rate(run_asperf: Callable[..., Ended]) -> None:
    """A server may keep spaces until the answer's end: TPOT is 0, and there is no rate."""
    whole = streamed([0.01, *sse(delta(20 * "  "), last(16, 20, model="m"))])
    with serving(Served(broken=whole)) as server:
        arguments = ("load", str(server.endpoint), "--users", "1", *_SMALL)
        ended = run_asperf(*arguments)
        point = json.loads(run_asperf(*arguments, "--report=json:-").stdout)["loads"][0]
    assert ended.stdout.splitlines()[1].split().count("-") == 2, ended.stdout
    assert point["user_rate"] is point["itl_ms"] is None


def test_users_that_wait_are_found(run_asperf: Callable[..., Ended]) -> None:
    """A server with one slot serves no two users at once."""
    with serving(Served(n_slots=1)) as server:
        ended = run_asperf("load", str(server.endpoint), "--users", "2", *_SMALL)
    assert ended.returncode == 4
    assert "INVALID queueing  2 users: the server has 1 slot for 2 users" in ended.stdout


def test_a_server_that_restarted_is_found(run_asperf: Callable[..., Ended]) -> None:
    """Tasks of llama-server are numbered from its start."""
    server = Served()
    server.tasks = iter([9, 3])  # type: ignore[assignment]
    with serving(server) as listening:
        ended = run_asperf("load", str(listening.endpoint), "--users", "1", *_SMALL)
    assert "server-restarted" in ended.stdout


def test_requests_that_fail_are_counted(run_asperf: Callable[..., Ended]) -> None:
    """A server that fails each request has a line, without figures, and the fault's name."""
    with serving(Served(broken=streamed(sse({"error": "oom"})))) as server:
        ended = run_asperf("load", str(server.endpoint), "--users", "1", *_SMALL)
    assert ended.returncode == 4
    assert "2 of 2 requests have no complete reply: stream-error" in ended.stdout


@pytest.mark.parametrize("how", FAILURES)
def test_a_server_that_fails_while_it_is_examined_is_no_work_left_out(
    run_asperf: Callable[..., Ended], how: str
) -> None:
    """The loads have their figures, and the report has the server's own words."""
    server = FailingServer(how)
    arguments = ("load", str(server.endpoint), "--users", "1", *_SMALL, "--report=json:-")
    ended = run_asperf(*arguments)
    server.close()
    data = json.loads(ended.stdout)
    assert ended.returncode == 4
    assert data["loads"][0]["output_rate"] > 0
    (guard,) = data["guards"]
    said = "failed-requests: the server failed while a reply was examined: http://*: "
    assert fnmatch(guard, f"{said}{FAILURES[how].said} (*")
    assert data["timed_work"].startswith("the server failed while a reply was examined: ")


def test_a_server_that_fails_under_load_is_named_as_failed(
    run_asperf: Callable[..., Ended],
) -> None:
    """A path that has answered is there, so 404 is the words of a failure."""
    server = FailingServer("a dead thread", n_answered=3)  # to find its path, to warm up, and one
    ended = run_asperf("load", str(server.endpoint), "--users", "1", *_SMALL)
    server.close()
    said = "1 of 2 requests have no complete reply: server-error: the server failed (HTTP 404): "
    assert f"{said}'generation thread died' (1)" in " ".join(ended.stdout.split())
    assert "read the server's log, and restart it if it has failed" in ended.stdout
    assert "timed-work" not in ended.stdout
    assert ended.returncode == 4


def test_a_server_that_answers_nothing_is_not_the_clients_fault(
    run_asperf: Callable[..., Ended],
) -> None:
    """Requests that fail at once keep the client busy, and nothing is timed."""
    server = FailingServer("no memory", n_answered=2)
    arguments = ("load", str(server.endpoint), "--users", "1,4", *_SMALL, "--report=json:-")
    ended = run_asperf(*arguments)
    server.close()
    found = [
        guard.partition(":")[0]
        for of in json.loads(ended.stdout)["loads"]
        for guard in of["guards"]
    ]
    assert (ended.returncode, found) == (4, 2 * ["failed-requests"])


def test_a_model_that_is_not_listed_is_named_by_the_option(
    run_asperf: Callable[..., Ended],
) -> None:
    """The advice is the command's own; a test has another."""
    server = Served()
    with serving(server) as listening:
        wrong = run_asperf("load", str(listening.endpoint), "--model", "other")
        server.listed = []
        none = run_asperf("load", str(listening.endpoint))
    for ended, what in (
        (wrong, "has no model other; it has m"),
        (none, "lists no model (HTTP 200)"),
    ):
        said = " ".join(ended.stderr.split())
        assert what in said
        assert said.endswith("write the name that the server has for its model: --model")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["http://127.0.0.1:9"], 4, "no connection to http://127.0.0.1:9"),
        (["nonsense"], 3, "write the URL of a server"),
        (["http://127.0.0.1:9", "--users", "0"], 3, "--users"),
        (["http://127.0.0.1:9", "--rate", "fast"], 3, "--rate"),
        (["http://127.0.0.1:9", "--workload", "tg64"], 3, "write a prompt and a reply"),
        (["http://127.0.0.1:9", "--workload", "load"], 3, "`asperf gate --workload load`"),
    ],
)
def test_wrong_input_is_an_error(
    run_asperf: Callable[..., Ended], arguments: list[str], code: int, message: str
) -> None:
    """An unusable request is named, without a traceback."""
    ended = run_asperf("load", *arguments)
    assert ended.returncode == code
    assert message in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
