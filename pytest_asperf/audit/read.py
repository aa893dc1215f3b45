"""The content of a file; a file that cannot be read is a result too."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.audit.llama_bench import (
    COLUMNS,
    rows_of_csv,
    rows_of_document,
    rows_of_json_lines,
    rows_of_sql,
)
from pytest_asperf.audit.load_generators import (
    LoadRun,
    load_runs_of_document,
    load_runs_of_lines,
)
from pytest_asperf.audit.log import Log, read_log
from pytest_asperf.audit.powermetrics import PowerLog, read_power
from pytest_asperf.audit.sniff import HEAD_BYTES, Kind, Lines, UnreadableError, read_document, sniff
from pytest_asperf.audit.tables import TableRow, rows_of_table, table_rows_of_document
from pytest_asperf.errors import printable
from pytest_asperf.worker.printed.timings import ServerReader, request_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.worker.printed.bench_rows import BenchRow

#: Begins the problem of a file that audit itself failed on.
DEFECT: Final = "audit failed on this file; please report it"


@dataclass(frozen=True, slots=True)
class FileReading:
    """One file.

    Attributes:
        format: what it is, in words; empty where it could not be read.
        problem: why it could not be read; empty where it was.
        cut_lines: lines whose tail was not read.
    """

    path: Path
    format: str = ""
    problem: str = ""
    measurement: tuple[BenchRow, ...] = ()
    log: Log | None = None
    power: PowerLog | None = None
    table: tuple[TableRow, ...] = ()
    load: tuple[LoadRun, ...] = ()
    cut_lines: int = 0


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
        kind, encoding = sniff(file.read(HEAD_BYTES))
        file.seek(0)
        lines = Lines(file, encoding)
        if kind is Kind.PLIST:
            return FileReading(path, "powermetrics", power=read_power(file))
        if kind is Kind.JSON:
            return _read_document(path, read_document(file, encoding))
        if kind is Kind.CSV:
            return _read_csv(path, lines)
        if kind is Kind.SQL:
            return _of_bench(path, "SQL", rows_of_sql(lines), lines.cut)
        if kind is Kind.JSON_LINES:
            return _read_json_lines(path, lines)
        return _read_text(path, lines)


def _read_json_lines(path: Path, lines: Lines) -> FileReading:
    first = lines.first()  # a server's log in JSON has another
    is_bench = all(f'"{column}"' in first for column in COLUMNS)
    if is_bench and (rows := rows_of_json_lines(lines)):
        return _of_bench(path, "JSON lines", rows, lines.cut)
    lines.restart()
    if load := load_runs_of_lines(lines):
        return _of_load(path, load, lines.cut)
    lines.restart()
    return _read_text(path, lines)


def _read_document(path: Path, document: object) -> FileReading:
    if rows := rows_of_document(document):
        return _of_bench(path, "JSON", rows)
    if load := load_runs_of_document(document):
        return _of_load(path, load)
    if table := table_rows_of_document(document):
        return FileReading(path, "a table of results, JSON", table=table)
    if request := request_of(document):
        return FileReading(path, "a reply of llama-server", log=Log(server=ServerReader([request])))
    if document in ([], {}):
        raise UnreadableError("JSON that holds nothing: no test was measured")
    raise UnreadableError("JSON of a shape that audit does not know")


def _read_csv(path: Path, lines: Lines) -> FileReading:
    columns = {cell.strip('"\ufeff ') for cell in lines.first().split(",")}
    try:
        if columns >= COLUMNS:
            return _of_bench(path, "CSV", rows_of_csv(lines), lines.cut)
        if table := rows_of_table(lines):
            return FileReading(path, "a table of results, CSV", table=table, cut_lines=lines.cut)
    except csv.Error as error:
        raise UnreadableError(f"broken CSV: {error}") from error
    raise UnreadableError("CSV with columns that audit does not know")


def _of_bench(path: Path, form: str, rows: tuple[BenchRow, ...], cut_lines: int = 0) -> FileReading:
    if not rows:
        raise UnreadableError(f"llama-bench, {form}, without a test: the run measured nothing")
    return FileReading(path, f"llama-bench, {form}", measurement=rows, cut_lines=cut_lines)


def _of_load(path: Path, load: tuple[LoadRun, ...], cut_lines: int = 0) -> FileReading:
    if not any(run.figures or run.requests for run in load):
        raise UnreadableError(f"{load[0].tool}, without a figure: no request was measured")
    return FileReading(path, load[0].tool, load=load, cut_lines=cut_lines)


def _read_text(path: Path, lines: Lines) -> FileReading:
    log = read_log(lines)
    if not log.tools:
        raise UnreadableError("not the output of a tool that audit knows")
    build = f", build {log.build}" if log.build else ""
    tools = ", ".join(log.tools)
    rows = tuple(log.bench.rows)
    return FileReading(path, f"{tools}{build}", measurement=rows, log=log, cut_lines=lines.cut)
