"""A worker's process: start it, send requests, survive its end.

A worker that crashes, hangs, or speaks nonsense is a result: each becomes an error that names the
signal and the engine's last log lines, and the session goes on. Ctrl-C waits until its remains can
be cleaned up.
"""

import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.config.engines import EXTRAS, Engine
from pytest_asperf.config.settings import NICE
from pytest_asperf.errors import Advice, EngineError, advised, escaped, printable
from pytest_asperf.worker import wire
from pytest_asperf.worker.printed.engine_log import LastWords

_REPORT: Final = "the log below is the engine's own; report it to the engine with the model named"
_MEMORY: Final = (
    "SIGKILL mostly comes from the kernel when memory runs out: use a smaller model, quantization "
    "or context; the kernel's log has the reason"
)
_COMPILED: Final = (
    "if llama.cpp was compiled on another processor, or by gcc 12 on one with AMX, compile it with "
    "CMAKE_ARGS=-DGGML_NATIVE=OFF; otherwise report it to the engine, with its log and the "
    "model's name"
)


class WorkerError(EngineError):
    """The worker died, hung or spoke nonsense; it is gone."""

    breaks_measurement = True

    def __init__(self, what: str, *, did: str = "crashed", manner: str = "", **parts: Any) -> None:
        super().__init__(what, **parts)
        self.did, self.manner = did, manner


class EngineRefusedError(EngineError):
    """The engine answered that it does not support a request; the worker goes on."""

    def __init__(self, kind: str, message: str, *, engine: Engine, request: str, log: str) -> None:
        super().__init__(
            f"{request}: the engine reported an error ({kind}): {message}",
            remedy=remedy_of(kind, engine, request.split()[1]),
            detail=log,
        )
        self.kind, self.engine = kind, engine
        self.breaks_measurement = kind in _BREAKING
        self.is_unfit = kind == "context"
        self.did = _DONE.get(kind, "refused")
        self.manner = printable(message, _LONGEST_MANNER) if kind not in _BRIEFLY else ""

    @property
    def is_of_setup(self) -> bool:
        """True if a part of the engine is missing, or does not fit the others: no build's fault."""
        is_absent = self.kind == "import" and "ModuleNotFoundError" in self.what
        return is_absent or self.kind in {"libraries", "package", "tools", "url"}

    @property
    def is_of_lasting_server(self) -> bool:
        """True if a server failed that no new process starts again, so that it may be down."""
        return self.kind == "server" and self.engine == "openai"


#: Errors in the middle of the work, whose figures would be of broken decodes.
_BREAKING: Final = {
    *(Guard.BROKEN_LOGITS, "command", "decode", "group", "internal", "logits", "non-finite"),
    *("position", "remote", "rollback", "sampling", "server", "tool", "vectors"),
}

_LIBRARIES: Final = ("llama_cpp", "mlx")
#: Engines that can do an operation that others do not support.
_ABLE: Final[dict[str, tuple[Engine, ...]]] = {
    **dict.fromkeys(("prompt", "generate", "first_token"), (*_LIBRARIES, "llama_tools")),
    **dict.fromkeys(("tokenize", "score"), (*_LIBRARIES, "llama_tools", "llama_server")),
    **dict.fromkeys(("run_together", "run_turns", "run_replies"), (*_LIBRARIES, "llama_server")),
    **dict.fromkeys(("run_drafted", "run_likeliest"), ("llama_server",)),
    "run_recompute": _LIBRARIES,
    "embed": ("llama_cpp", "llama_server", "openai"),
    "serve": ("llama_server", "mlx_server", "llama_cpp_server", "openai"),
    "output": ("command",),
    "speculate": ("llama_tools",),
}

#: Kinds that are no rejection of a request, and those that need no words of the engine.
_DONE: Final = {"memory": "ran out of memory", "internal": "failed inside", "server": "failed"}
_BRIEFLY: Final = {"memory", "internal"}
_LONGEST_MANNER: Final = 100
_LONGEST_LINE: Final = 300

_REMEDIES: Final = {
    Guard.BROKEN_LOGITS: Guard.BROKEN_LOGITS.remedy,
    "command": "run the command line by hand, and compare its output with what the phase reads",
    "context": "request less context, or a smaller depth",
    "decode": "the engine failed while computing; its log has the place",
    "group": "look at the log of the process that failed, or leave `processes` out",
    "import": Advice(
        "install the engine: pip install {package} (if pip finds none, it does not run on this "
        "platform or Python), or name the interpreter that has it",
        "python",
    ),
    "kv-cache": "choose another type for the KV cache, or leave it out",
    "libraries": Advice(
        "name libraries that this system and llama-cpp-python fit, or declare the build with the "
        "llama-cpp-python of about their time: requirements = ['llama-cpp-py-sync==0.9102', "
        "'llama-cpp-python==0.3.23']; or measure a release's binaries",
        engine="llama_tools",
    ),
    "load": "check the file with: asperf models verify, or load it with the engine's own tools",
    "memory": "use a smaller model, quantization or context, or close other programs",
    "package": "install it, or name a build with it, such as llama-cpp-python[server]==0.3.36",
    "vectors": "the vectors do not depend on the texts: the file or a kernel is broken",
    "name": Advice("write the name that the server has for its model", "default_model"),
    "non-finite": "the output has NaN or infinity, or overflows: the file or a kernel is broken",
    "remote": "start ggml-rpc-server of the same commit there, and end its other clients: it "
    "serves one at a time",
    "server": "read the server's log, and restart it if it has failed; of a server at a URL, check "
    "the address too",
    "url": Advice("name its URL", "url"),
    "sampling": "a sampler does something else than its settings say: report it to the engine",
    "settings": "leave them out, or give them for the engine that has them: "
    "settings.llama_cpp = {{ ... }} of the model",
    "rollback": "speculate with models of attention only, or leave rollback at auto, which uses "
    "the engine's checkpoints where it has them",
    "program": "correct `run` of the model's phases, or install the program",
    "quantize": "choose a quantization that this file can be quantized to",
    "tool": "run the program by hand; report it to llama.cpp with the model named",
    "tools": Advice("name a folder with all of llama.cpp's binaries", "tools"),
    "version": "set what both versions have, or leave this version out",
}


def remedy_of(kind: str, engine: Engine, op: str) -> Advice:
    """The remedy of an engine's error; for an operation of other engines, with their names."""
    if kind != "unsupported":
        advice = advised(_REMEDIES.get(kind, "read the engine's log below"))
        package = f"'pytest-asperf[{EXTRAS.get(engine, engine)}]'"
        return Advice(advice.text.format(package=package), settings=advice.settings)
    able = _ABLE.get(op, _LIBRARIES)
    if engine in able:
        return Advice("leave it out: this model or its settings do not have it")
    return Advice(f"measure it on {' or '.join(able)}", "engine")


def died(engine: Engine, op: str, status: int, log: str, explains: str = "") -> WorkerError:
    """A process that ended during an operation, with the status that Python gives it.

    `explains` is the line of its log with the reason of its end, if there is one.
    """
    how, manner, remedy = "", f"exited with status {status}", _REPORT
    if status < 0:
        how, manner = "was ended by ", signal.Signals(-status).name
    if status == -signal.SIGKILL:
        remedy = _MEMORY
    if engine == "llama_cpp" and -status in {signal.SIGSEGV, signal.SIGILL}:
        remedy = _COMPILED
    told = f"; its log has: {printable(explains, _LONGEST_LINE)}" if explains else ""
    return WorkerError(
        f"{engine} {op}: the engine's process {how}{manner}{told}",
        why="nothing was measured, and the next measurement starts a fresh process",
        remedy=remedy,
        detail=log,
        manner=manner,
    )


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """The start of a worker: an engine, in an interpreter that has it installed."""

    engine: Engine
    python: Path
    tools: Path | None = None  #: the folder of an engine's binaries, if it runs binaries
    url: str | None = None  #: of the server that an engine uses, if it starts none itself
    key_variable: str = ""  #: the environment's variable with that server's key
    nice: int = NICE  #: the nice value of its process, if the system allows it
    #: the folder of the libraries that llama-cpp-python loads instead of its own
    libraries: Path | None = None
    #: True if libraries that the user's environment names are not the build's
    has_own_libraries: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its process that differ from the user's; an empty one is removed."""
        is_named = self.libraries is not None or self.has_own_libraries
        return {"LLAMA_CPP_LIB_PATH": str(self.libraries or "")} if is_named else {}

    @property
    def opened_with(self) -> tuple[str, ...]:
        """The options that the engine itself is opened with."""
        if self.engine == "openai":
            return (self.url or "", self.key_variable)
        return () if self.tools is None else (str(self.tools),)


_WORKER_FOLDER: Final = Path(__file__).parent.parent / "worker"

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

#: From the end of its requests to the end of a process, before it is killed.
_ENDS_WITHIN_S: Final = 0.5

#: Errors of reading an answer of the wrong shape; OverflowError is an infinite count's.
_MALFORMED: Final = (KeyError, TypeError, ValueError, OverflowError)
Parsed = TypeVar("Parsed")

#: Errors after which the engine gets no further request. A server that failed may have ended or
#: hang.
_ENDING: Final = {"import", "libraries", "protocol", "tools", "server"}

#: Errors that the engine's log explains further.
_LOGGED: Final = {
    *("command", "decode", "group", "import", "internal", "load", "memory", "quantize"),
    *("server", "tool"),
}

#: Largest difference of two processes' stamps of one moment.
_CLOCK_NS: Final = 1e6
_PRIORITY_TIMEOUT_S: Final = 30
_LOG_LINES: Final = 8
_LOG_LINE_BYTES: Final = 2000


@dataclass(slots=True)
class _ClockOffset:
    """The offset between this process's clock and another one's, as far as stamps show it."""

    least_ns: float = -math.inf
    most_ns: float = math.inf
    call_ns: int = 0  #: from the last request until its reply was stamped, at most

    def explains(self, stamp_ns: object, sent_ns: int) -> bool:
        """True if one offset puts each stamp between a request and the receipt of its reply."""
        if isinstance(stamp_ns, int):
            self.least_ns = max(self.least_ns, sent_ns - stamp_ns)
            self.most_ns = min(self.most_ns, time.perf_counter_ns() - stamp_ns)
            self.call_ns = int(stamp_ns + self.most_ns) - sent_ns
        return self.least_ns <= self.most_ns + _CLOCK_NS


def engine_priority(nice: int) -> str | None:
    """The priority that an engine started now would have, in words; None for the usual one.

    A short process sets it and reports it: nothing else shows a container's permission.
    """
    command = (sys.executable, "-I", "-S", str(_WORKER_FOLDER / "priority.py"), str(nice))
    try:
        taken = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=_PRIORITY_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return taken.stdout or None


def start_interpreter(
    command: Sequence[str], fds: Sequence[int], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a worker's interpreter with its pipes, of which the last gets its output."""
    inherited = {name: text for name, text in os.environ.items() if name not in variables}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=fds[-1],
        stderr=fds[-1],
        pass_fds=fds,
        env=inherited | {name: text for name, text in variables.items() if text},
        # Ctrl-C is the parent's to handle: it must still be able to send requests and to clean up.
        start_new_session=True,
    )


def _about(op: str, args: Mapping[str, object]) -> str:
    """A request in words: the operation, and the model if there is one."""
    return f"{op} {args['model']}" if "model" in args else op


class EngineProcess:
    """One engine in one process. A context manager; every call has a deadline.

    Raises:
        WorkerError: the process could not be started.
        EngineRefusedError: the engine is not installed in that interpreter.
    """

    def __init__(self, build: EngineBuild, *, call_timeout_s: float = 600.0) -> None:
        self.build = build
        self.call_timeout_s = call_timeout_s
        self._next_id = 0
        self._offset = _ClockOffset()
        self._cores: tuple[int, ...] = ()
        self._buffer = bytearray()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._last_words = LastWords()
        with interrupts_later() as release:
            self._start()
            try:
                release()
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
            *("-I", "-c", _BOOTSTRAP, str(_WORKER_FOLDER), self.build.engine, str(self.build.nice)),
            *map(str, child_fds),
            *self.build.opened_with,
        ]
        try:
            self._process = start_interpreter(command, child_fds, self.build.variables)
        except OSError as err:
            for fd in (self._requests, self._replies, log_reader):
                os.close(fd)
            raise WorkerError(
                f"cannot start {self.build.python}: {err.strerror}",
                why="the engine runs in an interpreter of its own",
                remedy=Advice("name one that exists and has the engine", "python"),
            ) from err
        finally:
            for fd in child_fds:
                os.close(fd)
        self._log_thread = threading.Thread(target=self._read_log, args=(log_reader,), daemon=True)
        self._log_thread.start()

    def _read_log(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as stream:
            while line := stream.readline(_LOG_LINE_BYTES):
                if line == wire.LOG_ENDS:
                    self._log.clear()
                    self._last_words.clear()
                elif text := escaped(line.decode(errors="replace").rstrip()):
                    self._log.append(text)
                    self._last_words.add(text)

    @property
    def log_tail(self) -> str:
        """The engine's last log lines, below the one that explains its end if there is one.

        Control characters are escaped.
        """
        lines, explains = list(self._log), self._last_words.text
        return _indented([explains, "...", *lines] if explains else lines)

    def confine(self, cores: Collection[int]) -> None:
        """Have every thread run on these cores only; an OSError if they cannot be chosen."""
        self._cores = tuple(cores)
        if sys.platform == "linux":
            for thread in Path(f"/proc/{self.pid}/task").iterdir():
                with suppress(ProcessLookupError):  # a thread may end at any moment
                    os.sched_setaffinity(int(thread.name), cores)
        else:
            raise OSError("a process can choose its cores on Linux only")

    def call(self, op: str, *, timeout_s: float | None = None, **args: Any) -> dict[str, Any]:
        """Send one request and wait for the answer.

        Raises:
            WorkerError: the worker died, hung past the deadline, or spoke nonsense.
            EngineRefusedError: the engine cannot do it.
        """
        if self._requests < 0:
            raise WorkerError(
                f"{self.build.engine} {op}: this worker has been ended",
                why="a worker that failed once gets no further request",
                remedy="start another",
            )
        self._next_id += 1
        # One deadline for both directions: a process that is stopped does not read either.
        deadline = time.monotonic() + (timeout_s := timeout_s or self.call_timeout_s)
        what = _about(op, args)
        sent_ns = time.perf_counter_ns()
        self._send(wire.encode({"id": self._next_id, "op": op, "args": args}), deadline)
        reply = self._receive(what, timeout_s, deadline)
        if reply.get("id") != self._next_id:
            raise self._garbled(what, f"an answer to request {reply.get('id')!r}")
        if not self._offset.explains(reply.get("clock_ns"), sent_ns):
            raise self._garbled(what, "its clock has another speed than the system's")
        return self._result(reply, what)

    def _send(self, message: bytes, deadline: float) -> None:
        """Write a request; an obstacle shows in the missing reply."""
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
        if reply.get("ok") is True and isinstance(result := reply.get("result"), dict):
            return result
        if reply.get("ok") is False:
            kind, message = str(reply.get("kind"))[:40], str(reply.get("message"))[:4000]
            if kind in _ENDING:
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
        raise self._garbled(op, "neither a result nor a failure")

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
                raise self._garbled(op, f"a line of over {wire.MAX_LINE_BYTES} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return wire.decode(line)
        except wire.WireError as err:
            raise self._garbled(op, str(err)) from err

    def _died(self, op: str) -> WorkerError:
        self.close()
        status, explains = self._process.returncode, self._last_words.text
        return died(self.build.engine, op, status, self.log_tail, explains)

    def _hung(self, op: str, timeout_s: float) -> WorkerError:
        self.close()
        return WorkerError(
            f"{self.build.engine} {op}: no answer within {timeout_s:g} s, the process was ended",
            why="a hang would block every measurement behind it",
            remedy="find what hangs with the log below",
            opt_out="raise `call_timeout_s` under [tool.asperf] if the work needs more time",
            detail=self.log_tail,
            did="hung",
            manner=f"no answer within {timeout_s:g} s",
        )

    def asked(self, op: str, parse: Callable[[dict[str, Any]], Parsed], **args: Any) -> Parsed:
        """The answer to a request as `parse` reads it; a malformed one ends the process."""
        answer = self.call(op, **args)
        try:
            return parse(answer)
        except _MALFORMED as err:
            what = str(err) if type(err) is ValueError else repr(err)
            raise self._garbled(_about(op, args), f"the answer is malformed: {what}") from err

    def _garbled(self, op: str, what: str) -> WorkerError:
        """End the process; returns the error about the unreadable answer."""
        self._kill()
        return WorkerError(
            f"{self.build.engine} {op}: an unreadable answer: {what}",
            why="an answer that cannot be parsed cannot be trusted",
            remedy="see whether something in that interpreter writes to descriptors it does not "
            "own (a sitecustomize, a tracer)",
            detail=self.log_tail,
            did="answered nonsense",
            manner=what,
        )

    def successor(self) -> Self:
        """A new process of the build, on the same cores; this one has ended."""
        self.close()
        started = type(self)(self.build, call_timeout_s=self.call_timeout_s)
        if self._cores:
            started.confine(self._cores)
        return started

    def close(self) -> None:
        """End the process, in any state."""
        deadline = time.monotonic() + _ENDS_WITHIN_S
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1
            _read_to_end(self._replies, deadline)
            os.close(self._replies)
            self._replies = -1
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and its children
        self._process.wait()
        self._log_thread.join(timeout=1.0)

    def _kill(self) -> None:
        """End it before its pipes: one that still writes would add a broken pipe to its log."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if it can still get requests."""
        return self._requests >= 0 and self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _indented(lines: Sequence[str]) -> str:
    indented = [f"    {line}" for line in lines if line]
    return "\n".join(["  from the engine's log:", *indented]) if indented else ""


_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts_later() -> Iterator[Callable[[], None]]:
    """Delay KeyboardInterrupt until the block ends, or until it calls its argument.

    A process that is just being started has no object yet that could end it.

    Raises:
        KeyboardInterrupt: an interruption came meanwhile; from the call, or from the block's end.
    """
    # Python handles signals in the main thread only.
    is_main = threading.current_thread() is threading.main_thread()
    handled = [n for n in _NUMBERS if signal.getsignal(n) is signal.default_int_handler]
    delayed, noted = (handled if is_main else []), list[int]()

    def release() -> None:
        while delayed:
            signal.signal(delayed.pop(), signal.default_int_handler)
        if noted:
            noted.clear()
            raise KeyboardInterrupt

    for number in tuple(delayed):
        signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield release
    finally:
        release()


def _read_to_end(pipe: int, deadline: float) -> None:
    """Wait until a process, and so its pipe, ends; `Popen.wait` sleeps between its looks."""
    while (left_s := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe], [], [], left_s)
        if not ready or not os.read(pipe, select.PIPE_BUF):
            return
