"""The worker's loop: one request, one reply, until the parent closes the pipe."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from .engine import Asked, Engine, LoadedModel, RefusalError, Timing
from .priority import priority, take_priority
from .resident import give_back_free, own_peak
from .wire import LOG_ENDS, MAX_LINE_BYTES, WireError, decode, encode, write_all

if TYPE_CHECKING:
    from .scoring import ChunkScorer
    from .speculation_ops import Pairs

#: Engines by name: their module and class.
ENGINES: Final = {
    "llama_cpp": (".llama_cpp_engine", "LlamaCppEngine"),
    "mlx": (".mlx_engine", "MlxEngine"),
    "llama_tools": (".llama_tools_engine", "LlamaToolsEngine"),
    "scripted": (".scripted_engine", "ScriptedEngine"),
    "llama_server": (".llama_server_engine", "LlamaServerEngine"),
    "llama_cpp_server": (".llama_cpp_server_engine", "LlamaCppServerEngine"),
    "mlx_server": (".mlx_server_engine", "MlxServerEngine"),
    "openai": (".openai_engine", "OpenAiEngine"),
    "command": (".command_engine", "CommandEngine"),
}


class Server:
    """Keeps one engine and its loaded models, and answers requests about them."""

    def __init__(self, engine: Engine, rejected_nice: int = 0) -> None:
        self._engine = engine
        self._rejected_nice = rejected_nice
        self._models: dict[str, LoadedModel] = {}
        self._operations: dict[str, Callable[..., dict[str, Any]]] = {
            "describe": self._describe,
            "share": partial(_share, engine),
            "load": self._load,
            "unload": self._unload,
            "clear": self._clear,
            "tokenize": lambda model, text: {"tokens": self._model(model).tokenize(text)},
            "prompt": self._prompt,
            "generate": self._generate,
            "first_token": self._first_token,
            "serve": self._serve,
            "answered": lambda model: {"answers": self._model(model).answered},
            "answer_again": lambda model, **asked: self._model(model).answer_again(**asked),
            "answers_together": lambda model, **asked: {
                "texts": self._model(model).answers_together(**asked)
            },
            "text_tokens": lambda model, text: {"n": self._model(model).text_tokens(text)},
            "output": lambda model, **asked: {"text": self._model(model).output(**asked)},
            "score": self._score,
            "embed": lambda model, **asked: _embedded(self._model(model), **asked),
            "give_back": self._give_back,
            "quantize": self._quantize,
            "speculate": lambda model, draft, **asked: self._model(model).speculate(
                self._model(draft), **asked
            ),
        }

    @cached_property
    def _pairs(self) -> Pairs:
        from .speculation_ops import Pairs  # noqa: PLC0415  # engines that never do need no numpy

        return Pairs(self._model)

    @cached_property
    def _scorer(self) -> ChunkScorer:
        from .scoring import ChunkScorer  # noqa: PLC0415  # it brings numpy, too

        return ChunkScorer(self._model)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request; a failure is a reply too."""
        op = str(request.get("op"))
        known = self._operations
        if op.startswith("pair_"):
            known = self._pairs.operations
        elif op.startswith("run_"):
            from .revisits import Revisits  # noqa: PLC0415  # only where runs are examined

            known = Revisits(self._model).operations
        operation = known.get(op)
        if operation is None:
            return _failure("protocol", f"no operation {op!r}")
        try:
            result = operation(**request.get("args", {}))
        except RefusalError as refusal:
            return _failure(refusal.kind, str(refusal))
        except MemoryError:
            return _failure("memory", "the engine's process ran out of memory")
        except Exception as err:  # noqa: BLE001  # a bug in an engine is a result
            return _failure(
                "internal", f"{type(err).__name__}: {err}", traceback.format_exc(limit=-5)
            )
        return {"ok": True, "result": result}

    def _describe(self) -> dict[str, Any]:
        return {**self._engine.describe(), "priority": priority(self._rejected_nice)}

    def _load(self, model: str, path: str, settings: dict[str, Any]) -> dict[str, Any]:
        loaded = self._engine.load(path, settings)
        self._models[model] = loaded
        return loaded.facts

    def _unload(self, model: str) -> dict[str, Any]:
        """Free a model; returns its server's facts then, if another machine computed it."""
        remote = getattr(self._model(model), "remote", None)
        self._free(model)
        in_use = [getattr(loaded, "remote", None) for loaded in self._models.values()]
        return {"remote": remote.greet() if remote and remote not in in_use else None}

    def _free(self, model: str) -> None:
        self._model(model).close()
        del self._models[model]

    def _clear(self) -> dict[str, Any]:
        """Free every pair and model, and have the parent forget their logs."""
        if "_pairs" in vars(self):
            self._pairs.clear()
        for model in [*self._models]:
            self._free(model)
        os.write(2, b"\n" + LOG_ENDS)  # a line may be unfinished
        return {}

    def _give_back(self) -> dict[str, Any]:
        give_back_free()
        return {"peak_rss_bytes": own_peak()}

    def _prompt(self, model: str, tokens: list[int], depth: int, n_ctx: int) -> dict[str, Any]:
        loaded = self._model(model)
        return _timed(loaded.prompt(tokens, depth, n_ctx), loaded)

    def _generate(
        self, model: str, tokens: list[int], depth: int, n_ctx: int, sampled: str = ""
    ) -> dict[str, Any]:
        loaded = self._model(model)
        if sampled and sampled not in loaded.samples:
            raise RefusalError(
                "unsupported", f"@{sampled} is timed on llama_cpp or llama_server, and not here"
            )
        return _timed(loaded.generate(tokens, depth, n_ctx, sampled), loaded)

    def _first_token(self, model: str, tokens: list[int], depth: int, n_ctx: int) -> dict[str, Any]:
        if depth:
            raise RefusalError("protocol", "TTFT is timed from an empty context")
        loaded = self._model(model)
        return _timed(loaded.first_token(tokens, n_ctx), loaded)

    def _serve(self, model: str, **request: Any) -> dict[str, Any]:
        served = self._model(model)
        return _timed(served.serve(Asked(**request)), served)

    def _score(self, models: list[str], **request: Any) -> dict[str, Any]:
        """Score one chunk with every model; all after the first are compared with the first."""
        scores = self._scorer.score(models, **request)
        contexts = {
            name: {**self._model(name).context, "peak_rss_bytes": own_peak()} for name in models
        }
        return {"scores": scores, "contexts": contexts}

    def _quantize(self, source: str, target: str, recipe: dict[str, Any]) -> dict[str, Any]:
        self._engine.quantize(source, target, recipe)
        return {}

    def _model(self, name: str) -> LoadedModel:
        try:
            return self._models[name]
        except KeyError:
            raise RefusalError("model", f"no model {name!r} is loaded") from None


def _failure(kind: str, message: str, trace: str = "") -> dict[str, Any]:
    return {"ok": False, "kind": kind, "message": message, "trace": trace}


def _binding() -> str:
    """The installed llama-cpp-python, whose import failed."""
    from importlib import metadata  # noqa: PLC0415  # it is slow, and only errors need it

    try:
        return f"llama-cpp-python {metadata.version('llama-cpp-python')}"
    except metadata.PackageNotFoundError:
        return "this interpreter"


def _is_not_installed(err: Exception) -> bool:
    """True if one of asperf's imports found no package; a trace would add nothing."""
    raised_in = traceback.extract_tb(err.__traceback__)[-1].filename
    is_ours = raised_in.rpartition("/")[0] == __file__.rpartition("/")[0]
    return isinstance(err, ModuleNotFoundError) and is_ours


def _timed(timing: Timing, model: LoadedModel) -> dict[str, Any]:
    return {
        "n_tokens": timing.n_tokens,
        "elapsed_ns": timing.elapsed_ns,
        "step_ns": list(timing.step_ns),
        "logits": None if timing.logits is None else asdict(timing.logits),
        "requests": list(timing.requests),
        "context": model.context,
        # A running server is a child that was not waited for, and is in no sum of the system's.
        "peak_rss_bytes": getattr(model, "peak_rss_bytes", 0) or own_peak(),
    }


def _embedded(loaded: LoadedModel, texts: list[str], *, together: bool) -> dict[str, Any]:
    """The vector of each text; an error if they do not depend on the texts."""
    vectors = list(loaded.embed(texts, together=together))
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        raise RefusalError("vectors", "a vector has numbers that are not finite")
    if not all(map(any, vectors)):
        raise RefusalError("vectors", "a vector is zero")
    if len(vectors) > 1 and all(vector == vectors[0] for vector in vectors):
        raise RefusalError("vectors", f"all {len(vectors)} texts have the same vector")
    context = {**loaded.context, "peak_rss_bytes": own_peak()}
    return {"vectors": vectors, "context": context}


def _share(engine: Engine, folder: str) -> dict[str, Any]:
    """Have an engine share filled caches with its later processes, if it can."""
    if share := getattr(engine, "share", None):
        share(folder)
    return {}


def _capture_output(log_fd: int) -> None:
    """Send file descriptors 1 and 2 to the parent's log, below any library's buffering."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    # C's stdout is block-buffered on a pipe, and its buffer is lost in a crash.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, 2, 0)


def _end_with_parent(request_fd: int) -> None:
    """End this process and its programs when the parent closes the pipe or dies, even in a call."""

    def watch() -> None:
        poll = select.poll()
        poll.register(request_fd, 0)  # a hang-up is reported for every mask
        poll.poll()
        _end_programs()
        os._exit(0)

    # A handler, unlike ignoring, is not inherited by programs.
    signal.signal(signal.SIGHUP, lambda *_: None)
    threading.Thread(target=watch, daemon=True).start()


def _end_programs() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGHUP)
        os.killpg(0, signal.SIGCONT)  # a stopped program receives it when it resumes


def main(arguments: list[str]) -> None:
    """Serve requests until end of file.

    The arguments are the engine's name, the nice value, the descriptors of requests, replies and
    log, and the engine's own arguments.
    """
    name, nice, *descriptors = arguments[:5]
    request_fd, reply_fd, log_fd = map(int, descriptors)
    # otherwise a crash's reason is not its last words
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    _capture_output(log_fd)
    rejected_nice = take_priority(int(nice))
    _end_with_parent(request_fd)
    with os.fdopen(request_fd, "rb") as requests:
        try:
            module, engine_class = ENGINES[name]
            opened = getattr(importlib.import_module(module, __package__), engine_class)
            engine: Engine = opened(*arguments[5:])
        except RefusalError as refusal:
            write_all(reply_fd, encode(_failure(refusal.kind, str(refusal))))
            return
        except Exception as err:  # noqa: BLE001  # whatever an engine's import does wrong
            message = f"{type(err).__name__}: {err}"
            kind = "import"
            if folder := os.environ.get("LLAMA_CPP_LIB_PATH"):
                kind = "libraries"
                message = f"{_binding()} cannot use the libraries of {folder}: {err}"
            is_explained = kind == "libraries" or _is_not_installed(err)
            trace = "" if is_explained else traceback.format_exc()
            write_all(reply_fd, encode(_failure(kind, message, trace)))
            return
        hello = {"ok": True, "result": {"pid": os.getpid(), "python": sys.version.split()[0]}}
        write_all(reply_fd, encode(hello))
        server = Server(engine, rejected_nice)
        # A request for a model that is shared with other processes runs in them too.
        group = getattr(engine, "group", None)
        respond = partial(group.mirrored, answer=server.answer) if group else server.answer
        while line := requests.readline(MAX_LINE_BYTES):
            try:
                request = decode(line)
            except WireError as err:
                write_all(reply_fd, encode(_failure("protocol", str(err))))
                return
            reply = respond(request)
            try:
                stamp = {"id": request.get("id"), "clock_ns": time.perf_counter_ns()}
                answer = encode({**stamp, **reply})
            except ValueError as err:
                failure = _failure("non-finite", f"the result is not a number: {err}")
                answer = encode({"id": request.get("id"), **failure})
            write_all(reply_fd, answer)
        _end_programs()  # between two calls, this thread sees the end first
