"""The content of a file; a file that cannot be read is a result too."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.audit.delimited import lacks_header
from pytest_asperf.audit.lines import Layout, Lines
from pytest_asperf.audit.log import Log, read_log
from pytest_asperf.audit.powermetrics import PowerLog, read_power
from pytest_asperf.audit.sniff import HEAD_BYTES, Kind, UnreadableError, read_document, sniff
from pytest_asperf.audit.tables import TableRow
from pytest_asperf.errors import printable

#: Number of lines on which each way of reading a file is tried.
_TRIED_LINES: Final = 300
#: Begins the problem of a file that audit itself failed on.
DEFECT: Final = "audit failed on this file; please report it"


@dataclass(frozen=True, slots=True)
class FileReading:
    """One file."""

    path: Path
    format: str = ""  #: its name, in words; empty if it could not be read
    problem: str = ""  #: why it could not be read; empty if it was
    log: Log | None = None
    power: PowerLog | None = None
    cut_lines: int = 0  #: lines whose end was not read

    @property
    def table(self) -> tuple[TableRow, ...]:
        """The rows of people's own tables."""
        return tuple(self.log.own.rows) if self.log else ()


def read_file(path: Path) -> FileReading:
    """Read one file in bounded memory."""
    try:
        if not path.is_file():
            # A pipe or a device may have no end.
            what = "is a folder" if path.is_dir() else "is not a file, or does not exist"
            return FileReading(path, problem=what)
        if not path.stat().st_size:
            # Neither may a file of the kernel's, such as /proc/kmsg.
            return FileReading(path, problem="the file is empty")
        return _read(path)
    except UnreadableError as error:
        return FileReading(path, problem=str(error))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        return FileReading(path, problem=f"it cannot be read: {reason or error}")
    except Exception as error:  # noqa: BLE001  # the other files of the call are still judged
        return FileReading(
            path, problem=f"{DEFECT}: {printable(f'{type(error).__name__}: {error}')}"
        )


def _read(path: Path) -> FileReading:
    with path.open("rb") as file:
        kind, head = sniff(file.read(HEAD_BYTES))
        file.seek(0)
        if kind is Kind.PLIST:
            return FileReading(path, "powermetrics", power=read_power(file))
        problem = ""
        if kind is Kind.JSON:
            try:
                return _read_document(path, read_document(file))
            except UnreadableError as error:
                problem = str(error)  # unless other lines are among its own
            file.seek(0)
        if kind is Kind.CSV:
            problem = "CSV with columns that audit does not read"
        elif lacks_header(head[:_TRIED_LINES]):
            problem = "CSV without its header: a first line must name the columns"
        lines = Lines(file)
        return _read_text(path, lines, head, problem)


def _read_document(path: Path, document: object) -> FileReading:
    log = Log()
    log.add_document(document)
    log.end()
    _require_figures(log)
    if tools := log.tools:
        return FileReading(path, f"{tools[0]}, JSON", log=log)
    if log.bench.problems:
        raise UnreadableError(log.bench.problems[0])
    if document in ([], {}):
        raise UnreadableError("JSON without content: no test was measured")
    raise UnreadableError(log.named or "JSON of a shape that audit does not read")


def _read_text(path: Path, lines: Lines, head: list[str], problem: str) -> FileReading:
    layouts = Layout.candidates(head)
    layout = layouts[0]
    if len(layouts) > 1:  # the one by which most is read; of equals the one without more prefix
        tried = head[:_TRIED_LINES]
        found = {one: read_log(tried, one).n_found for one in layouts}
        most = [one for one in layouts if found[one] == max(found.values())]
        shared = [one for one in most if found[one] and one.is_shared(tried)]
        layout = [most[0], *shared][-1]
    log = read_log(lines, layout)
    _require_figures(log)
    if not log.tools:
        raise UnreadableError(_what_it_is(log, problem))
    build = f", build {log.build}" if log.build else ""
    return FileReading(path, f"{', '.join(log.tools)}{build}", log=log, cut_lines=lines.cut)


def _require_figures(log: Log) -> None:
    if log.load and not any(run.figures or run.requests for run in log.load):
        raise UnreadableError(f"{log.load[0].tool}, without a figure: no request was measured")


def _what_it_is(log: Log, problem: str) -> str:
    """The reason why a text without a figure was not read."""
    if log.bench.problems:
        return log.bench.problems[0]
    if (unread := log.unread_rows) and not log.ollama.cut:
        return unread
    if log.begun:
        return ": ".join(filter(None, [log.begun, log.errors.trouble]))
    return log.named or problem or "not the output of a tool that audit reads"
