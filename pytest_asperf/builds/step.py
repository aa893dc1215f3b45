"""One step of making a build: a program that may work for minutes, watched line by line.

The reason why a step failed is found in the output of pip, CMake and compilers.
"""

import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from pytest_asperf.config.progress import Notify, SoFar
from pytest_asperf.engine_process.process import interrupts_later
from pytest_asperf.errors import AsperfError, BuildError, escaped, printable
from pytest_asperf.modelfiles.cache import disk_full, explained


@dataclass(frozen=True, slots=True)
class Job:
    """One build at work, in the folder where it stays: environments cannot be moved."""

    title: str
    folder: Path
    notify: Notify

    @property
    def log(self) -> Path:
        """All that is printed while it is made."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def run(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Run one of its steps; a StepFailure if it ends with an error."""
        self.notify.progress(f"building {self.title}", 0, 100)

        def on_line(line: str) -> None:
            if (share := counted(line)) is not None:
                self.notify.progress(f"building {self.title}", *share, SoFar(counted="steps"))

        try:
            with explained(self.log.parent), self.log.open("ab"):
                pass
            run_step(command, cwd=self.folder, env=env, log=self.log, on_line=on_line)
        except FileNotFoundError as error:
            raise BuildError(
                f"{self.title}: {printable(command[0], 200)} cannot be started: {error.strerror}",
                remedy="install it, or correct PATH",
            ) from error


#: Lines that are kept of a step, and shown of a failure.
_KEPT_LINES: Final = 4000
_ERROR_LINES: Final = 10
_LAST_LINES: Final = 6
_LINE_CHARS: Final = 300
_LINE_BYTES: Final = 4096
_STOP_TIMEOUT_S: Final = 5.0

#: Prefixes of errors of compilers, linkers, CMake, Ninja and Python.
_ERROR: Final = re.compile(
    r"CMake Error|\b(fatal )?error:|undefined reference|^FAILED:|^\w*(Error|Exception): ",
    re.IGNORECASE,
)
#: `[12/300]` of Ninja, `[ 45%]` of Make.
_COUNTED: Final = re.compile(r"^\s*\[\s*(\d+)(?:/(\d+)|%)\]")


class StepFailure(Exception):  # noqa: N818  # a failure of somebody else's program, not of ours
    """A program ended with an error; a negative status is the signal that ended it."""

    def __init__(self, program: str, status: int, lines: tuple[str, ...]) -> None:
        super().__init__(program, status)
        self.program = program
        self.status = status
        self.lines = lines

    @property
    def excerpt(self) -> str:
        """The first error in its output and the lines after it, and the end of it."""
        lines = [escaped(line)[:_LINE_CHARS] for line in self.lines if line.strip()]
        first = next((i for i, line in enumerate(lines) if _ERROR.search(line)), len(lines))
        last = max(len(lines) - _LAST_LINES, 0)
        shown = [*lines[first : min(first + _ERROR_LINES, last)]]
        if shown and first + _ERROR_LINES < last:
            shown.append("…")
        return "\n".join(f"  | {line}" for line in (*shown, *lines[last:]))


def run_step(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None],
) -> None:
    """Run a program to its end, with its output added to a log file and given to `on_line`.

    Any interruption, Ctrl-C too, ends everything that the program has started. An exit status other
    than 0 is a StepFailure.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    # A reader may follow the log.
    with log.open("ab", buffering=0) as file, interrupts_later() as release:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A group of its own: compilers are grandchildren, and all of them have to go.
            start_new_session=True,
        )
        output = cast("IO[bytes]", process.stdout)  # it is a pipe
        try:
            release()
            while raw := output.readline(_LINE_BYTES):
                file.write(raw)
                line = raw.decode(errors="replace").rstrip()
                lines.append(line)
                on_line(line)
            status = process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            output.close()
    if status:
        raise StepFailure(str(command[0]).rpartition("/")[2], status, tuple(lines))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all its processes, in any group."""
    import psutil  # noqa: PLC0415  # only where something is stopped

    with suppress(psutil.NoSuchProcess):
        program = psutil.Process(process.pid)
        family = [*program.children(recursive=True), program]
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    end(member)
            _, family = psutil.wait_procs(family, timeout=_STOP_TIMEOUT_S)
    process.wait()


def counted(line: str) -> tuple[int, int] | None:
    """The progress that a compiler's line reports, `done` of `total`; None for other lines."""
    match = _COUNTED.match(line)
    return (int(match[1]), int(match[2] or 100)) if match else None


def first_match(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    """The first match in some lines."""
    return next((match for line in lines if (match := pattern.search(line))), None)


_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_OFFLINE: Final = re.compile(
    r"Name or service not known|Temporary failure in name resolution|nodename nor servname"
    r"|Network is unreachable|NewConnectionError|Connection refused|No route to host|ProxyError"
    r"|ConnectTimeout",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"https?://[^\s'\"`)>]+|host='(?P<host>[^']+)'")
_NO_VERSION: Final = re.compile(r"No matching distribution found for|requires a different Python")
_PREFIX: Final = re.compile(r"^\s*ERROR:\s*")
_VERSIONS: Final = re.compile(r"\(from versions: (?P<versions>[^)]*)\)")
_NO_COMPILER: Final = re.compile(
    r"No CMAKE_C(XX)?_COMPILER could be found|CMAKE_C(XX)?_COMPILER not set|is not able to compile"
    r"|could not find any instance of Visual Studio|CMAKE_C(XX)?_COMPILER:[^\n]*|"
    r"is not a full path and was not found in the PATH|unable to execute '?(gcc|cc|clang)"
)
_NO_ENSUREPIP: Final = re.compile(
    r"ensurepip is not (available|installed)|No module named ensurepip"
)

_VERSIONS_SHOWN: Final = 8
_NEEDED: Final = "a gate needs both of its builds"
_INDEX: Final = "https://pypi.org/simple"


def environment_failure(error: StepFailure, title: str, *, folder: Path, log: Path) -> AsperfError:
    """The error for packages that could not be installed."""
    if first_match(_FULL, error.lines):
        return disk_full(folder.parent)
    versions = first_match(_VERSIONS, error.lines)
    known = [v.strip() for v in versions["versions"].split(",")] if versions else []
    is_known = bool(known) and known != ["none"]
    if first_match(_OFFLINE, error.lines) and not is_known:
        return _offline(error, title, log)
    if line := next((line for line in error.lines if _NO_VERSION.search(line)), None):
        newest = f"; the newest it has: {', '.join(known[-_VERSIONS_SHOWN:])}" if is_known else ""
        return BuildError(
            f"{title} cannot be installed: {printable(_PREFIX.sub('', line), 300)}",
            why=_NEEDED,
            remedy=f"name a version that the index has for this Python and platform"
            f"{printable(newest, 300)}",
            opt_out="name the path of a wheel, or of an interpreter that has it installed",
            detail=_detail(error, log),
        )
    if first_match(_NO_ENSUREPIP, error.lines):
        return BuildError(
            f"no environment can be made for {title}: this Python has no ensurepip",
            remedy="install the system's package for it (python3-venv), or pip next to "
            "pytest-asperf (in an environment that uv made: uv pip install pip)",
            opt_out="name the path of an interpreter that has the engine installed",
            detail=_detail(error, log),
        )
    return compile_failure(error, f"{title} cannot be installed", folder=folder, log=log)


def compile_failure(error: StepFailure, what: str, *, folder: Path, log: Path) -> AsperfError:
    """The error for a build that could not be configured or compiled."""
    if first_match(_FULL, error.lines):
        return disk_full(folder.parent)
    remedy = "correct what the first error below names; if this machine's compiler is too new or "
    remedy += "too old for the release, set CC and CXX in the build's env"
    ended = f"signal {-error.status}" if error.status < 0 else f"status {error.status}"
    if first_match(_NO_COMPILER, error.lines):
        what = f"{what}: no working C or C++ compiler, or no make"
        remedy = "install one (Debian and Ubuntu: build-essential; macOS: xcode-select --install), "
        remedy += "or name it with CC and CXX in the build's env"
    return BuildError(
        f"{what}: {error.program} ended with {ended}",
        why=_NEEDED,
        remedy=remedy,
        opt_out="name the path of an interpreter, or of a folder of built binaries",
        detail=_detail(error, log),
    )


def _offline(error: StepFailure, title: str, log: Path) -> BuildError:
    host = first_match(_HOST, error.lines)
    index = (host["host"] or host[0]) if host else _INDEX
    return BuildError(
        f"{title} cannot be fetched: the package index {printable(index, 200)} cannot be reached",
        why="a requirement is downloaded the first time, with what it depends on",
        remedy="go online for the first run, or name a reachable index with PIP_INDEX_URL",
        opt_out="name the path of an interpreter that has it installed",
        detail=_detail(error, log),
    )


def _detail(error: StepFailure, log: Path) -> str:
    return f"{error.excerpt}\n  all of it: {log}"
