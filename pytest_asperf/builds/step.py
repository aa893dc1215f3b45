"""One step of making a build: a program that may work for minutes, watched line by line."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from pytest_asperf.config.progress import SoFar
from pytest_asperf.engine_process.interrupts import interrupts_later
from pytest_asperf.errors import BuildError, escaped, printable
from pytest_asperf.modelfiles.cache import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_asperf.config.progress import Notify


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

#: How compilers, linkers, CMake, Ninja and Python begin what went wrong.
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
        """The first error in its output and what follows, and the end of it."""
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

    Whatever stops it, Ctrl-C too, ends everything that the program has started. Another exit
    status than 0 is a StepFailure.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    # Somebody may follow the log.
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
    """End a program and all that it has started, in whichever group that is."""
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
