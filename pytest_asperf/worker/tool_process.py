"""llama.cpp's binaries as processes: their output is kept, and every failure is reported.

An exit status of 0 proves nothing: several programs print an error and exit with 0.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .engine import Facts, RefusalError
from .printed.bench_rows import BenchRow, BrokenRowError, bench_row
from .printed.engine_log import LOG_PREFIX, LastWords
from .resident import UNIT

if TYPE_CHECKING:
    Watch = Callable[[int, str], None]

_MAX_LINES: Final = 20_000
_MAX_LINE_BYTES: Final = 4000
_MAX_OUTPUT_BYTES: Final = 64 * 2**20
_QUOTED_LINES: Final = 6
_QUOTED_CHARS: Final = 200
#: Lines of a verbose log that come by the hundred and help no user.
_NOISE: Final = re.compile(
    r"create_tensor:|llama_graph_n_input|graph_reserve:|llama_model_loader: - (?:kv|type)"
)
#: The first line about the model. Errors before it belong to the search for devices.
_BEGINS: Final = "llama_model_loader: loaded meta data"
#: The last three are of llama_cpp.server, which loads a build's libraries.
_SETS_OPTIONS: Final = re.compile(r"LLAMA_(?!CPP_LIB_PATH)|(HOST|PORT|CONFIG_FILE)$")
_ERROR: Final = re.compile(
    r"\berror\b ?:|\bfailed to\b|\bfailed to decode|GGML_ASSERT|ggml_abort|[Oo]ut of memory|"
    r"OutOfMemory"
)
#: Errors about a file that the system cannot execute.
_UNUSABLE: Final = {errno.EACCES, errno.ENOENT, errno.ENOEXEC}
#: The status by glibc or dyld of a program whose libraries are missing or of another build, and
#: their words for it.
_NOT_BEGUN: Final = {127, -signal.SIGABRT}
_NO_LIBRARY: Final = re.compile(
    r"error while loading shared libraries|symbol lookup error|Library not loaded|Symbol not found"
)
_METADATA: Final = "llama_model_loader: - kv"


def own_libraries(folder: Path) -> dict[str, str]:
    """The variable by which a folder's programs load its libraries, if it has llama.cpp's.

    Compiled programs have the path of the folder that they were linked in, so a copy would be run
    with libraries that the original folder has now.
    """
    if not any(folder.glob("libggml*")) and not any(folder.glob("libllama*")):
        return {}
    name = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    return {name: os.pathsep.join(filter(None, (str(folder), os.environ.get(name))))}


class ToolRun:
    """One running program, which inherits the descriptors `pass_fds`, in a folder.

    `name` is its name in messages. A failure of a server has a kind of its own.
    """

    def __init__(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        name: str = "",
        kind: str = "tool",
        stdin: int = subprocess.DEVNULL,
        folder: Path | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._name, self._kind, self._watch = name or program.name, kind, watch
        self.peak_rss_bytes = 0  #: its peak resident memory, once it has ended
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._last_words = LastWords()
        self._output = bytearray()
        # Variables that set options would change the run that was requested.
        env = {key: value for key, value in os.environ.items() if not _SETS_OPTIONS.match(key)}
        env |= own_libraries(program.parent)
        try:
            self._process = subprocess.Popen(
                [str(program), *arguments],
                stdin=stdin,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
                env=env,
            )
        except OSError as err:
            # A program of another system, or whose interpreter is missing, is no program of it.
            kind = "tools" if kind == "tool" and err.errno in _UNUSABLE else kind
            raise RefusalError(kind, f"cannot start {program}: {err.strerror}") from err
        readers = (self._read_output, self._read_log)
        self._readers = [threading.Thread(target=reader, daemon=True) for reader in readers]
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        stream = self._process.stdout
        while stream and (data := os.read(stream.fileno(), 1 << 16)):
            if len(self._output) < _MAX_OUTPUT_BYTES:
                self._output += data

    def _read_log(self) -> None:
        stream = self._process.stderr
        while stream and (raw := stream.readline(_MAX_LINE_BYTES)):
            line = raw.decode(errors="replace").rstrip()
            self._lines.append(line)
            self._last_words.add(LOG_PREFIX.sub("", line))
            if self._watch:
                self._watch(self.pid, line)
            if line and not _NOISE.search(line):
                os.write(2, f"{self._name}: {line}\n".encode())

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return bytes(self._output).decode(errors="replace")

    @property
    def log(self) -> list[str]:
        """Lines of its log so far, without the clock that begins them."""
        return [LOG_PREFIX.sub("", line) for line in list(self._lines)]

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True if it runs no more."""
        return self._process.poll() is not None

    def pause(self) -> None:
        """Stop it, so that it uses no cores of other work."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume it."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self.wait()

    def finish(self) -> None:
        """Wait for its end; raises for a crash, a failure or a logged error."""
        self.wait()
        if self._process.returncode:
            raise self.failure(self.how_it_ended())
        if wrong := self.first_error():
            raise self.failure(f"exited with 0 and logged: {wrong}")

    def how_it_ended(self) -> str:
        """Its signal or exit status, in words; it has ended."""
        self.wait()
        status = self._process.returncode
        if status >= 0:
            return f"exited with status {status}"
        name = signal.Signals(-status).name
        memory = " (mostly the kernel's, when memory runs out)" if name == "SIGKILL" else ""
        return f"was ended by {name}{memory}"

    def failure(self, what: str) -> RefusalError:
        """The error for a failure of this program, with its last lines."""
        logged = [line for line in self.log if line and not _NOISE.search(line)]
        last_lines = (logged or [line for line in self.output.splitlines() if line])[
            -_QUOTED_LINES:
        ]
        if (explains := self._last_words.text) and explains not in last_lines:
            last_lines = [explains, "...", *last_lines]
        quoted = " | ".join(line[:_QUOTED_CHARS] for line in last_lines) or "it logged nothing"
        # Without its libraries a program does not begin: a part is missing, and nothing fails.
        is_absent = self._process.poll() in _NOT_BEGUN and _NO_LIBRARY.search(quoted)
        kind = "tools" if is_absent else self._kind
        return RefusalError(kind, f"{self._name} {what}; its log ends with: {quoted}")

    def first_error(self) -> str:
        """The first error line of its log, otherwise an empty string."""
        has_begun = False
        for line in list(self._lines):
            has_begun |= _BEGINS in line
            prefix = LOG_PREFIX.match(line)
            is_error = bool(prefix and prefix[0].endswith(" E "))
            if has_begun and _METADATA not in line and (is_error or _ERROR.search(line)):
                return line[:_QUOTED_CHARS]
        return ""

    def wait(self) -> None:
        """Wait for its end, of any kind."""
        self._reap()
        for reader in self._readers:
            reader.join(timeout=5.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream and not any(reader.is_alive() for reader in self._readers):
                stream.close()

    def _reap(self) -> None:
        """Wait as Popen does, and keep the kernel's counts."""
        process = self._process
        if process.returncode is None:
            with suppress(ChildProcessError):  # polled meanwhile
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                self.peak_rss_bytes = used.ru_maxrss * UNIT
        process.wait()


class Toolbox:
    """A folder of llama.cpp's binaries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._help: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """A program's file."""
        path = self.folder / name
        if not path.is_file():
            raise RefusalError("tools", f"there is no program {name} in {self.folder}")
        if not os.access(path, os.X_OK):
            raise RefusalError("tools", f"{path} has no permission to be run: chmod +x {path}")
        return path

    def start(self, name: str, *arguments: str, watch: Watch | None = None) -> ToolRun:
        """Start a program."""
        return ToolRun(self.path(name), arguments, watch=watch)

    def start_on(
        self,
        name: str,
        text: str,
        *arguments: str,
        pass_fds: Sequence[int] = (),
        watch: Watch | None = None,
    ) -> ToolRun:
        """Start a program on a text; it inherits the descriptors `pass_fds`."""
        with tempfile.TemporaryFile() as file:
            # The binaries remove one line end from the end of a text.
            file.write(text.encode() + b"\n")
            file.seek(0)
            named = ("-f", f"/dev/fd/{file.fileno()}")
            fds = (*pass_fds, file.fileno())
            return ToolRun(self.path(name), (*arguments, *named), pass_fds=fds, watch=watch)

    def run(self, name: str, *arguments: str, watch: Watch | None = None) -> ToolRun:
        """Run a program to its end; raises for a crash, a failure or a logged error."""
        run = self.start(name, *arguments, watch=watch)
        run.finish()
        return run

    def help(self, name: str) -> str:
        """A program's help text; an error without one, such as for a missing library."""
        if name not in self._help:
            run = self.start(name, "--help")
            run.wait()
            text = run.output + "\n".join(run.log)
            if "--" not in text:
                raise run.failure("does not start: its help lists no options")
            self._help[name] = text
        return self._help[name]


PROGRAM: Final = "llama-bench"
#: By setting: the option of llama-bench, that of the other binaries, and the column of a row.
OPTIONS: Final = {
    "threads": ("-t", "-t", "n_threads"),
    "n_gpu_layers": ("-ngl", "-ngl", "n_gpu_layers"),
    "flash_attn": ("-fa", "-fa", "flash_attn"),
    "type_k": ("-ctk", "-ctk", "type_k"),
    "type_v": ("-ctv", "-ctv", "type_v"),
    "n_batch": ("-b", "", "n_batch"),
    "n_ubatch": ("-ub", "", "n_ubatch"),
    "tensor_split": ("-ts", "-ts", "tensor_split"),
}
_FLASH_CELLS: Final = {
    "auto": ("-1", "auto"),
    "on": ("1", "true", "on"),
    "off": ("0", "false", "off"),
}
#: Columns for the run record.
_NEEDED: Final = ("n_threads", "type_k", "type_v", "model_n_params")


@dataclass(frozen=True, slots=True)
class Bench:
    """llama-bench on one model's file."""

    tools: Toolbox
    path: str
    settings: Mapping[str, Any]

    def measure(
        self, n_prompt: int, n_gen: int, depth: int, *options: str, watch: Watch | None = None
    ) -> tuple[BenchRow, Facts, ToolRun]:
        """Run one test once; its row, the row's columns, and the run."""
        arguments = ["-m", self.path, "-p", str(n_prompt), "-n", str(n_gen), "-d", str(depth)]
        arguments += ["-r", "1", "-o", "jsonl", "-v", *options]
        for key, value in self.settings.items():
            arguments += [OPTIONS[key][0], self._argument(key, value)]
        run = self.tools.run(PROGRAM, *arguments, watch=watch)
        expected = {
            "model_filename": self.path, "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth,
            **{OPTIONS[key][2]: value for key, value in self.settings.items()},
        }  # fmt: skip
        row, cells = _checked(run, expected)
        return row, cells, run

    def _argument(self, key: str, value: object) -> str:
        takes_words = "-fa, --flash-attn <on|off|auto>" in self.tools.help(PROGRAM)
        if key != "flash_attn" or takes_words:
            return str(value)
        return _FLASH_CELLS[str(value)][0]


def _checked(run: ToolRun, expected: Facts) -> tuple[BenchRow, Facts]:
    """The one test that was printed, with its columns, if it is the expected one."""
    rows = [line for line in run.output.splitlines() if line.strip()]
    if len(rows) != 1:
        raise run.failure(f"exited with 0 and printed {len(rows)} tests instead of 1")
    try:
        cells = json.loads(rows[0])
    except (ValueError, RecursionError) as err:
        raise run.failure("printed a test that is cut off or not JSON") from err
    if not isinstance(cells, dict):
        raise run.failure("printed no test but other JSON")
    try:
        row = bench_row(cells)
    except BrokenRowError as err:
        raise run.failure(f"printed a test that {err}") from err
    if len(row.samples_ns) != 1:
        raise run.failure(f"timed {len(row.samples_ns)} runs instead of 1")
    if missing := [cell for cell in _NEEDED if cell not in cells]:
        raise run.failure(f"printed a test without {', '.join(missing)}")
    for cell, value in expected.items():
        if not _is_same(cell, value, cells.get(cell)):
            raise run.failure(f"was started with {cell} {value} and reports {cells.get(cell)}")
    return row, cells


def _is_same(cell: str, expected: object, printed: object) -> bool:
    if cell == "flash_attn":
        return str(printed).lower() in _FLASH_CELLS[str(expected)]
    if cell == "tensor_split":  # printed up to the last share that is not 0
        shares = "/".join(f"{float(share):.2f}" for share in str(expected).split("/"))
        return printed == re.sub("(/0.00)+$", "", shares)
    return str(printed) == str(expected)
