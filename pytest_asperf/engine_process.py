"""The parent's end of a worker: start it, ask it, outlive it.

A worker that crashes, hangs, or speaks nonsense is a result: each becomes an error that names the
signal and the engine's last log lines, and the session goes on.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pytest_asperf.config.engines import EXTRAS, Engine
from pytest_asperf.errors import EngineError, escaped
from pytest_asperf.worker import wire
from pytest_asperf.worker.engine import LogitRow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.config.engine_settings import EngineSettings

_WORKER_FOLDER: Final = Path(__file__).parent / "worker"

#: Loads the worker folder under an alias, so that neither this package nor its neighbours in
#: site-packages are needed, or found, by the engine's interpreter.
_BOOTSTRAP: Final = """
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "asperf_worker", folder + "/__init__.py", submodule_search_locations=[folder]
)
package = importlib.util.module_from_spec(spec)
sys.modules["asperf_worker"] = package
spec.loader.exec_module(package)
from asperf_worker.main import main
main(sys.argv[2:])
"""

#: What reading an answer of the wrong shape raises; OverflowError is an infinite count's.
MALFORMED: Final = (KeyError, TypeError, ValueError, OverflowError)
_LONGEST_RUN_NS: Final = 2**63
_LOG_LINES: Final = 400
_LOG_LINE_BYTES: Final = 2000


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """An engine in an interpreter: what a worker is started from.

    Attributes:
        engine: the engine's name, a key of `pytest_asperf.worker.main.ENGINES`.
        python: the interpreter that has the engine installed.
        tools: the folder of programs that the engine runs, for one that runs programs.
    """

    engine: Engine
    python: Path
    tools: Path | None = None


class WorkerError(EngineError):
    """The worker died, hung or spoke nonsense; it is gone."""

    breaks_measurement = True


class EngineRefusedError(EngineError):
    """The engine answered that it cannot do what was asked; the worker lives on.

    Attributes:
        kind: the engine's short word for it.
    """

    def __init__(self, kind: str, message: str, *, engine: Engine, request: str, log: str) -> None:
        package = f"'pytest-asperf[{EXTRAS.get(engine, engine)}]'"
        super().__init__(
            f"{request}: the engine refused ({kind}): {message}",
            why="nothing was measured",
            remedy=_REMEDIES.get(kind, "read the engine's log below").format(package=package),
            detail=log,
        )
        self.kind = kind
        self.breaks_measurement = kind in _BREAKING


#: Refusals in the middle of the work, whose figures would be of broken decodes.
_BREAKING: Final = {"decode", "internal", "logits", "non-finite", "position", "rollback", "tool"}

_REMEDIES: Final = {
    "context": "ask for less context, or for a smaller depth",
    "decode": "the engine failed while computing; its log says where",
    "import": "install the engine: pip install {package}, or name the interpreter that has it with "
    "--asperf-python; where pip finds no package, the engine does not run on this platform or "
    "Python",
    "kv-cache": "choose another type for the KV cache, or leave it out",
    "load": "check the file with: asperf models verify, or load it with the engine's own tools",
    "memory": "use a smaller model, level or context, or close other programs",
    "non-finite": "the model's output holds NaN or infinity or overflows: the file or kernel is "
    "broken",
    "settings": "leave them out, or give them for the engine that has them: "
    "settings.llama_cpp = {{ ... }} of the model",
    "rollback": "speculate with models of attention only, or leave rollback at auto, which uses "
    "the engine's checkpoints where it has them",
    "quantize": "choose a level that this file can be quantised to",
    "tool": "run the program by hand; report it to llama.cpp with the model named",
    "tools": "name a folder that has llama-bench, llama-perplexity and llama-quantize, with "
    "--asperf-tools or as `tools` of a build",
    "unsupported": "measure it on an engine that can, with --asperf-engine",
    "version": "set what both versions have, or leave this version out",
}


#: Refusals that the engine's log explains further.
_LOGGED: Final = {"decode", "import", "internal", "load", "memory", "quantize", "tool"}


def usable_cores() -> tuple[int, ...]:
    """Return the logical cores that a worker can be confined to; none where none can be chosen."""
    return tuple(sorted(os.sched_getaffinity(0))) if sys.platform == "linux" else ()


@dataclass(frozen=True, slots=True)
class RawRun:
    """One timed run as the engine counted it: tokens and nanoseconds, nothing derived.

    Attributes:
        n_tokens: tokens decoded inside the clock.
        elapsed_ns: wall time of all of them.
        step_ns: wall time of each decode call.
        context: what the context resolved to.
        peak_rss_bytes: the worker's peak resident memory so far.
        logits: those after the last token, None where the engine shows none.
    """

    n_tokens: int
    elapsed_ns: int
    step_ns: tuple[int, ...]
    context: dict[str, Any]
    peak_rss_bytes: int
    logits: LogitRow | None = None


class Worker:
    """One engine in one process. A context manager; every call has a deadline.

    Args:
        build: the engine and its interpreter.
        call_timeout_s: the deadline of the start, and of a call that names none.

    Raises:
        WorkerError: the process could not be started.
        EngineRefusedError: the engine is not installed in that interpreter.
    """

    def __init__(self, build: EngineBuild, *, call_timeout_s: float = 600.0) -> None:
        self.build = build
        self._call_timeout_s = call_timeout_s
        self._next_id = 0
        self._buffer = bytearray()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._start()
        try:
            deadline = time.monotonic() + call_timeout_s
            self._result(self._receive("start", call_timeout_s, deadline), "start")
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        log_reader, child_log = os.pipe()
        child_fds = (child_requests, child_replies, child_log)
        command = [
            str(self.build.python),
            *("-I", "-c", _BOOTSTRAP, str(_WORKER_FOLDER), self.build.engine),
            *map(str, child_fds),
            *([] if self.build.tools is None else [str(self.build.tools)]),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=child_log,
                stderr=child_log,
                pass_fds=child_fds,
                # Ctrl-C is the parent's to handle: it must still be able to ask and to clean up.
                start_new_session=True,
            )
        except OSError as err:
            for fd in (self._requests, self._replies, log_reader):
                os.close(fd)
            raise WorkerError(
                f"cannot start {self.build.python}: {err.strerror}",
                why="the engine runs in an interpreter of its own",
                remedy="name one that exists and has the engine, with --asperf-python",
            ) from err
        finally:
            for fd in child_fds:
                os.close(fd)
        self._log_thread = threading.Thread(target=self._read_log, args=(log_reader,), daemon=True)
        self._log_thread.start()

    def _read_log(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as stream:
            while line := stream.readline(_LOG_LINE_BYTES):
                self._log.append(escaped(line.decode(errors="replace").rstrip()))

    @property
    def log_tail(self) -> str:
        """The engine's last log lines, control characters escaped."""
        return _indented(list(self._log)[-8:])

    def describe(self) -> dict[str, Any]:
        """Return the engine's proof of path: library, version, build, devices."""
        return self.call("describe")

    def load(self, name: str, path: Path, settings: EngineSettings) -> dict[str, Any]:
        """Load a model file under a name, and return its facts."""
        return self.call("load", model=name, path=str(path), settings=settings.as_dict())

    def unload(self, name: str) -> None:
        """Free a model."""
        self.call("unload", model=name)

    def confine(self, cores: Collection[int]) -> None:
        """Have every thread of the process run on these logical cores only.

        Raises:
            OSError: the process has ended, or the system lets nobody choose (`usable_cores`).
        """
        if sys.platform == "linux":
            for thread in Path(f"/proc/{self.pid}/task").iterdir():
                with suppress(ProcessLookupError):  # a thread may end at any moment
                    os.sched_setaffinity(int(thread.name), cores)
        else:
            raise OSError("only Linux lets a process choose its cores")

    def tokenize(self, name: str, text: str) -> list[int]:
        """Return a text's token ids, with BOS where the tokenizer adds one."""
        tokens = self.call("tokenize", model=name, text=text).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise self.garbled(f"tokenize {name}", "the tokens are not a list of numbers")
        return tokens

    def prompt(self, name: str, tokens: Sequence[int], depth: int) -> RawRun:
        """Time `tokens[depth:]` decoded in batches, after `tokens[:depth]`."""
        return self._timed("prompt", name, tokens, depth)

    def generate(self, name: str, tokens: Sequence[int], depth: int) -> RawRun:
        """Time `tokens[depth:]` decoded one at a time, after `tokens[:depth]`."""
        return self._timed("generate", name, tokens, depth)

    def first_token(self, name: str, tokens: Sequence[int]) -> RawRun:
        """Time `tokens` decoded in batches until the next token is chosen."""
        return self._timed("first_token", name, tokens, 0)

    def score(
        self, names: Sequence[str], tokens: Sequence[int], first: int, *, concurrency: int = 1
    ) -> dict[str, tuple[ChunkScore, dict[str, Any]]]:
        """Score one chunk with every named model, each compared with the first.

        Args:
            names: the baseline, then the levels.
            tokens: the chunk, n tokens.
            first: logits from this position on are scored: n - 1 - first of them.
            concurrency: levels scored at a time.

        Returns:
            For each model its scores, and what its context resolved to.

        Raises:
            MeasurementError: scores that no model can have; see `ChunkScore`.
        """
        answer = self.call(
            "score", models=list(names), tokens=list(tokens), first=first, concurrency=concurrency
        )
        try:
            return {
                name: (_chunk_score(answer["scores"][name]), dict(answer["contexts"][name]))
                for name in names
            }
        except MALFORMED as err:
            raise self.garbled("score", f"the scores are malformed: {err!r}") from err

    def quantize(self, source: Path, target: Path, recipe: dict[str, Any]) -> None:
        """Write a model at another level; `recipe` as `engines.level_recipe` gives it."""
        self.call("quantize", source=str(source), target=str(target), recipe=recipe)

    def speculate(
        self, target: str, draft: str, prompt: str, *, n_new: int, k: int
    ) -> dict[str, Any]:
        """Generate with the engine's own program for speculation; return its counts and time."""
        return self.call("speculate", model=target, draft=draft, prompt=prompt, n_new=n_new, k=k)

    def batch_costs(
        self, name: str, sizes: Sequence[int], *, depth: int, n_steps: int
    ) -> dict[int, int]:
        """Time `n_steps` decodes of each batch size with the engine's own program, in ns."""
        answer = self.call(
            "batch_costs", model=name, sizes=list(sizes), depth=depth, n_steps=n_steps
        )
        try:
            return {int(size): int(elapsed_ns) for size, elapsed_ns in answer["elapsed_ns"]}
        except MALFORMED as err:
            raise self.garbled(f"batch_costs {name}", f"the times are malformed: {err!r}") from err

    def _timed(self, op: str, name: str, tokens: Sequence[int], depth: int) -> RawRun:
        answer = self.call(op, model=name, tokens=list(tokens), depth=depth)
        try:
            run = RawRun(
                int(answer["n_tokens"]),
                int(answer["elapsed_ns"]),
                tuple(map(int, answer["step_ns"])),
                dict(answer["context"]),
                int(answer["peak_rss_bytes"]),
                _logit_row(answer["logits"]),
            )
        except MALFORMED as err:
            raise self.garbled(f"{op} {name}", f"the run is malformed: {err!r}") from err
        if run.n_tokens != len(tokens) - depth or not 0 < run.elapsed_ns < _LONGEST_RUN_NS:
            what = f"{run.n_tokens} tokens in {run.elapsed_ns} ns are impossible"
            raise self.garbled(f"{op} {name}", what)
        return run

    def call(self, op: str, *, timeout_s: float | None = None, **args: Any) -> dict[str, Any]:
        """Ask one thing and wait for the answer.

        Raises:
            WorkerError: the worker died, hung past the deadline, or spoke nonsense.
            EngineRefusedError: the engine cannot do it.
        """
        if self._requests < 0:
            raise WorkerError(
                f"{self.build.engine} {op}: this worker has been ended",
                why="a worker that failed once is not asked again",
                remedy="start another",
            )
        self._next_id += 1
        # One deadline for both directions: a process that is stopped does not read either.
        deadline = time.monotonic() + (timeout_s := timeout_s or self._call_timeout_s)
        what = f"{op} {args['model']}" if "model" in args else op
        self._send(wire.encode({"id": self._next_id, "op": op, "args": args}), deadline)
        reply = self._receive(what, timeout_s, deadline)
        if reply.get("id") != self._next_id:
            raise self.garbled(what, f"an answer to request {reply.get('id')!r}")
        return self._result(reply, what)

    def _send(self, message: bytes, deadline: float) -> None:
        """Write a request; whatever hinders that is told by the reply that does not come."""
        view = memoryview(message)
        while view:
            left_s = max(0.0, deadline - time.monotonic())
            _, ready, _ = select.select([], [self._requests], [], left_s)
            if not ready:
                return
            try:
                view = view[os.write(self._requests, view[: select.PIPE_BUF]) :]
            except BrokenPipeError:
                return

    def _result(self, reply: dict[str, Any], op: str) -> dict[str, Any]:
        if reply.get("ok") is True and isinstance(reply.get("result"), dict):
            result: dict[str, Any] = reply["result"]
            return result
        if reply.get("ok") is False:
            kind, message = str(reply.get("kind"))[:40], str(reply.get("message"))[:4000]
            if kind in {"import", "protocol", "tools"}:
                self.close()
            trace = _indented(str(reply.get("trace", ""))[-4000:].splitlines()[-16:])
            log = self.log_tail if kind in _LOGGED and not trace else trace
            raise EngineRefusedError(
                kind,
                message,
                engine=self.build.engine,
                request=f"{self.build.engine} {op}",
                log=log,
            )
        raise self.garbled(op, "neither a result nor a failure")

    def _receive(self, op: str, timeout_s: float, deadline: float) -> dict[str, Any]:
        n_searched = 0
        while (end := self._buffer.find(b"\n", n_searched)) < 0:
            n_searched = len(self._buffer)
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._replies], [], [], max(0.0, left_s))
            if not ready:
                raise self._hung(op, timeout_s)
            data = os.read(self._replies, 1 << 20)
            if not data:
                raise self._died(op)
            self._buffer += data
            if len(self._buffer) > wire.MAX_LINE_BYTES:
                raise self.garbled(op, f"a line of over {wire.MAX_LINE_BYTES} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return wire.decode(line)
        except wire.WireError as err:
            raise self.garbled(op, str(err)) from err

    def _died(self, op: str) -> WorkerError:
        self.close()
        status = self._process.returncode
        how = f"exited with status {status}"
        remedy = "the log below is the engine's own; report it to the engine with the model named"
        if status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        if status == -signal.SIGKILL:
            remedy = (
                "SIGKILL mostly comes from the kernel when memory runs out: use a smaller model, "
                "level or context; the kernel's log says whether it was that"
            )
        return WorkerError(
            f"{self.build.engine} {op}: the engine's process {how}",
            why="nothing was measured, and the next measurement starts a fresh process",
            remedy=remedy,
            detail=self.log_tail,
        )

    def _hung(self, op: str, timeout_s: float) -> WorkerError:
        self.close()
        return WorkerError(
            f"{self.build.engine} {op}: no answer within {timeout_s:g} s, the process was ended",
            why="a hang would hold up every test behind it",
            remedy="find what hangs with the log below",
            opt_out="raise `call_timeout_s` under [tool.asperf] where the work takes longer",
            detail=self.log_tail,
        )

    def garbled(self, op: str, what: str) -> WorkerError:
        """End the process, and return the error that says what was not understood."""
        self.close()
        return WorkerError(
            f"{self.build.engine} {op}: nonsense on the pipe: {what}",
            why="an answer that cannot be read cannot be believed",
            remedy="see whether something in that interpreter writes to descriptors it does not "
            "own (a sitecustomize, a tracer)",
            detail=self.log_tail,
        )

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._requests >= 0:
            os.close(self._requests)
            os.close(self._replies)
            self._requests = self._replies = -1
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it started
        self._log_thread.join(timeout=1.0)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._requests >= 0 and self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _indented(lines: Sequence[str]) -> str:
    told = [f"    {line}" for line in lines if line]
    return "\n".join(["  the engine's last words:", *told]) if told else ""


def _logit_row(row: dict[str, Any] | None) -> LogitRow | None:
    if row is None:
        return None
    peak = None if row["peak"] is None else float(row["peak"])
    return LogitRow(int(row["n_vocab"]), int(row["n_nan"]), int(row["n_inf"]), peak)


def _chunk_score(row: dict[str, Any]) -> ChunkScore:
    from pytest_asperf.analysis.metrics import ChunkScore  # noqa: PLC0415  # brings numpy and scipy

    return ChunkScore(
        tuple(map(float, row["nll"])),
        tuple(map(float, row.get("kld", ()))),
        tuple(map(bool, row.get("same_top", ()))),
    )
