"""Servers for engines that use one: their tokens are words, and each fault is chosen."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.serving.fake_server import FakeServer, Step, chunked, head, sse, streamed


def answer(payload: Any, status: str = "200 OK") -> list[Step]:
    """A reply that is one JSON document."""
    body = json.dumps(payload).encode()
    return [head(status, "application/json", f"Content-Length: {len(body)}", chunked=False), body]


def _text(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text}]}


def words_after(prompt: str, seed: int | None, n: int) -> list[str]:
    """So many words, each by all words before it, wherever the prompt ends.

    A seed chooses half of them.
    """
    state, words = sha256(), list[str]()
    for word in prompt.split():
        state.update(f"{word} ".encode())
    for _ in range(n):
        drawn = int(sha256(f"{seed} {state.hexdigest()}".encode()).hexdigest(), 16)
        is_drawn = seed is not None and drawn % 2
        words.append(f"word{(drawn // 2 if is_drawn else int(state.hexdigest(), 16)) % 100}")
        state.update(f"{words[-1]} ".encode())
    return words


class WordServer(FakeServer):
    """An OpenAI-compatible server of one model, `fake`, whose tokens are words.

    Args:
        cached: tokens of each prompt that it reports as cached.
        key: that it requires; empty for none.
        has_completions: whether it has more than a chat.
        tasks: numbers of its last task, for each request, as llama-server reports them.
        slots: its reported slots, if it reports its tasks.

    Attributes:
        step_s: seconds of a word.
        coldest: the temperature up to which answers are the likeliest ones.
    """

    step_s = 0.002
    coldest = 0.01

    def __init__(
        self,
        *,
        cached: int = 0,
        key: str = "",
        has_completions: bool = True,
        tasks: Iterator[int] | None = None,
        slots: int = 4,
    ) -> None:
        self._cached, self._key, self._has_completions = cached, key, has_completions
        self._tasks, self._slots = tasks, slots
        super().__init__(self._reply)

    def _read(self, connection: socket.socket) -> dict[str, Any]:
        body = super()._read(connection)
        lines = self.heads[-1].splitlines()
        return {**body, "path": lines[0].split()[1], "head": lines[1:]}

    def _reply(self, request: dict[str, Any]) -> Iterator[Step]:
        if self._key and f"Authorization: Bearer {self._key}" not in request["head"]:
            yield from answer({"error": {"message": "no such key"}}, "401 Unauthorized")
        elif request["path"] == "/v1/models":
            yield from answer({"data": [{"id": "fake"}, {"id": "other"}]})
        elif request["path"] == "/v1/chat/completions":
            yield from self._stream(
                request, "the head of a chat " + request["messages"][0]["content"]
            )
        elif request["path"] == "/props" and self._tasks:
            yield from answer({"total_slots": self._slots, "build_info": "b1"})
        elif request["path"] == "/slots" and self._tasks:
            yield from answer([{"id_task": next(self._tasks)}])
        elif request["path"] == "/tokenize":
            yield from answer({"tokens": [0] * len(request["prompt"].split())})
        elif request["path"] == "/v1/embeddings":
            rows = enumerate(map(self.vector, request["input"]))
            yield from answer({"data": [{"index": n, "embedding": row} for n, row in rows]})
        elif request["path"] == "/v1/completions" and self._has_completions:
            yield from self._stream(request, request["prompt"])
        else:
            yield from answer({"error": "not found"}, "404 Not Found")

    def answer(self, prompt: str, seed: int | None, n: int) -> list[str]:
        """So many words after a prompt, by a seed; the likeliest ones without a seed."""
        return words_after(prompt, seed, n)

    def vector(self, text: str) -> list[float]:
        """The vector of a text: how often it has each letter."""
        return [float(text.lower().count(letter)) for letter in "etaoinshr"]

    def _stream(self, request: dict[str, Any], prompt: str) -> Iterator[Step]:
        if not request.get("stream"):
            yield from answer({"choices": [{"text": "word"}]})
            return
        n = request["max_tokens"]
        is_cold = request.get("temperature", 1) <= self.coldest
        words = self.answer(prompt, None if is_cold else request.get("seed"), n)
        yield head()
        yield 0.02
        yield from chunked(self._parts(prompt, words, n))

    def _parts(self, prompt: str, words: list[str], n: int) -> Iterator[Step]:
        began = perf_counter()
        for piece in self.pieces(words):
            yield from [piece] if isinstance(piece, float) else sse(_text(piece), done=False)
        account = self.account(prompt, n, perf_counter() - began)
        end = {"choices": [{"text": "", "finish_reason": "length"}], "model": "fake", **account}
        yield from sse(end)

    def pieces(self, words: list[str]) -> Iterator[str | float]:
        """The texts of a reply's chunks, and the waits between them."""
        for word in words:
            yield f"{word} "
            yield self.step_s

    def account(self, prompt: str, n: int, _spent_s: float) -> dict[str, Any]:
        """The server's own counts at a reply's end; others report the time too."""
        usage = {
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": n,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }
        return {"usage": usage}


class FirstOnly(WordServer):
    """A server that computes one request at a time, and makes up the answers to others."""

    def __init__(self, **options: Any) -> None:
        self._counting, self._n_open = threading.Lock(), 0
        super().__init__(**options)

    def answer(self, prompt: str, seed: int | None, n: int) -> list[str]:
        """Words after the prompt if no other request is open, otherwise words after noise."""
        with self._counting:
            self._n_open += 1
            is_first = self._n_open == 1
        return super().answer(prompt if is_first else f"{prompt} noise", seed, n)

    def account(self, prompt: str, n: int, spent_s: float) -> dict[str, Any]:
        """The counts at a reply's end, with which it is closed."""
        with self._counting:
            self._n_open -= 1
        return super().account(prompt, n, spent_s)


#: A program that speaks as llama-server does, and does one kind of harm.
_PROGRAM = """#!{python} -IS
import json, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
plan = json.loads({plan!r})

def option(name):
    return sys.argv[sys.argv.index(name) + 1]

if "--help" in sys.argv or "--version" in sys.argv:
    sys.exit(print("--version\\nversion: 1 (abcdef1)"))
with open(plan["pid_file"], "w") as file:
    file.write(str(os.getpid()))

def log(*lines):
    sys.stderr.write("\\n".join((*lines, "")))
    sys.stderr.flush()

def log_rest():
    time.sleep(plan.get("logs_late", 0))
    log("system_info: n_threads = 1 (n_threads_batch = 1)", "srv llama_server: model loaded")

log("llama_model_loader: loaded meta data", "print_info: n_layer = 2")
if plan["harm"] == "exit":
    sys.exit("error: the model is broken")
if plan["harm"] == "package":
    sys.exit("ModuleNotFoundError: No module named 'uvicorn'")
threading.Thread(target=log_rest).start()

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def document(self, payload, status=200):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(payload).encode())

    def do_GET(self):
        if self.path == "/health" and plan["harm"] == "loading":
            return self.document({{}}, 503)
        props = {{"model_path": option("-m"), "total_slots": 4, "build_info": "b1",
                 "default_generation_settings": {{"n_ctx": 2048, "params": {{}}}}}}
        meta = {{"n_params": 7, "size": 14, "n_vocab": 2, "n_ctx_train": 2048}}
        known = {{"/props": props, "/v1/models": {{"data": [{{"meta": meta}}]}}}}
        self.document(known.get(self.path, {{}}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.document({{"tokens": [0] * len(body["content"].split())}})
        if self.path == "/completion":
            listed = [{{"id": 0, "logprob": -0.1}}, {{"id": 1, "logprob": -2.4}}]
            chosen = [token for token, _ in body["logit_bias"]] or [0]
            step = {{**listed[chosen[0]], "top_logprobs": listed}}
            return self.document({{"completion_probabilities": [step]}})
        with open(plan["prompts"], "a") as file:
            file.write(json.dumps(body["prompt"]) + "\\n")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        time.sleep(0.02)
        n = body["max_tokens"] - (plan["harm"] == "short")
        for number in range(n):
            self.event({{"choices": [{{"text": "word "}}]}})
            time.sleep(0.002)
            if number == 2 and plan["harm"] == "die":
                sys.stderr.write("GGML_ASSERT failed\\n")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 2 and plan["harm"] == "hang":
                time.sleep(3600)
        cached = plan.get("cached", 0)
        n_new = max(0, len(body["prompt"].split()) - cached)
        timings = {{"cache_n": cached, "prompt_n": n_new, "predicted_n": n}}
        self.event({{"choices": [{{"finish_reason": "length"}}], "timings": timings}})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def event(self, payload):
        self.wfile.write(b"data: %b\\n\\n" % json.dumps(payload).encode())
        self.wfile.flush()

ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler).serve_forever()
"""


def write_llama_server(folder: Path, harm: str = "", **plan: Any) -> Path:
    """Write a folder of programs whose llama-server does that harm; gives the file of its pid."""
    pid_file = folder / "pid"
    files = {"pid_file": str(pid_file), "prompts": str(folder / "prompts")}
    plan = {"harm": harm, **files, **plan}
    program = folder / "llama-server"
    program.write_text(_PROGRAM.format(python=sys.executable, plan=json.dumps(plan)))
    program.chmod(0o755)
    return pid_file


@dataclass(frozen=True)
class Failure:
    """A server's reply from its failure on, None if it is gone; and the words for it."""

    reply: list[Step] | None
    said: str


_ONE = _text("word ")
#: By name.
FAILURES = {
    "a dead thread": Failure(
        answer({"error": "generation thread died"}, "404 Not Found"),
        "server-error: the server failed (HTTP 404): 'generation thread died'",
    ),
    "no memory": Failure(
        answer({"error": {"message": "no memory\x1b"}}, "500 Internal Server Error"),
        "server-error: the server failed (HTTP 500): 'no memory\\x1b'",
    ),
    "an error in its stream": Failure(
        streamed(sse({"error": {"message": "no memory"}}, done=False)),
        "stream-error: the server failed within its reply: 'no memory'",
    ),
    "half a stream": Failure(
        streamed(sse(_ONE, done=False)),
        "truncated: the stream ended before the server marked it complete",
    ),
    "half a transfer": Failure(
        streamed(sse(_ONE, done=False), end=False),
        "truncated: the server closed the connection after * bytes of an incomplete reply",
    ),
    "a reset": Failure([None], "lost: the connection was lost: Connection reset by peer"),
    "gone": Failure(None, "lost: the server closed the connection without a reply"),
}


class FailingServer(WordServer):
    """A server that fails for good as soon as it is examined: a request comes again, or greedily.

    Args:
        how: the name of a failure.
        n_answered: replies before it fails in any case.
    """

    def __init__(self, how: str, n_answered: int = 1000) -> None:
        self._failure, self._n_left = FAILURES[how], n_answered
        self._seen = set[tuple[str, int]]()
        super().__init__()

    def _stream(self, request: dict[str, Any], prompt: str) -> Iterator[Step]:
        asked = prompt, request.get("seed", 0)
        # A new process requests the server's name again, without a stream.
        is_again = asked in self._seen and "stream" in request
        is_examined = request.get("temperature") == 0 or is_again
        self._seen.add(asked)
        self._n_left = -1 if is_examined else self._n_left - 1
        if self._n_left >= 0:
            yield from super()._stream(request, prompt)
        elif self._failure.reply is None:
            self.close()
        else:
            yield from self._failure.reply
