"""A whole report: its head, a gate's or a nightly run's additions, and the records; from JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pytest_asperf.errors import ConfigError, printable, shown
from pytest_asperf.hardware.machine import Gpu
from pytest_asperf.records.codec import MALFORMED, decode, decode_as, encode
from pytest_asperf.records.kinds import AnyRecord, Noted

SCHEMA: Final = 3
#: Keys of a row in addition to its record's.
AROUND: Final = ("test", "machine", "apart")
_MAX_BYTES: Final = 256 * 2**20
_REMEDY: Final = "name a JSON report of pytest or of asperf gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The hardware and the system of a machine."""

    id: str = ""  #: its fingerprint; empty if it never reported its facts
    hardware: str = ""  #: the name that figures are compared with
    profile: str | None = None  #: the hardware profile; None if there is none
    os: str = ""
    os_version: str = ""
    arch: str = ""
    cpu: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    memory_bytes: int | None = None
    virtualised: bool | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMeta:
    """One machine of several, with its measuring conditions."""

    host: str = ""
    python: str = ""
    machine: MachineFacts = field(default_factory=MachineFacts)
    headline: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """When, where and how a session was run."""

    version: str  #: of pytest-asperf
    command: str = ""  #: the command line
    options: tuple[str, ...] = ()  #: the options that repeat a measurement
    time: str = ""  #: when the session began, ISO 8601
    duration_s: float | None = None  #: seconds until the report was written
    host: str = ""  #: the machine's name on the network
    python: str = ""  #: version of the interpreter
    seed: int | None = None  #: of every random order; None if each xdist worker drew its own
    machine: MachineFacts = field(default_factory=MachineFacts)  #: that measured
    #: by name, if there are several
    machines: Mapping[str, MachineMeta] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """One check of a gate."""

    workload: str  #: its name, such as `tg128`
    model: str  #: the model spec
    #: the engine settings that belong to the check
    settings: Mapping[str, str] = field(default_factory=dict)
    elapsed_s: float  #: its duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutFacts:
    """A check that a gate left out."""

    check: str  #: what it is about
    reason: str  #: why no build can run it


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """A gate as a whole."""

    baseline: str  #: name of the build that was compared with
    candidate: str  #: name of the build that was judged
    limits: str = ""  #: the accepted limits, in words
    answer: str = ""  #: the verdict on the gate, with its counts and seconds, as it was printed
    counts: str = ""  #: how many checks have each outcome, in words
    exit_code: int  #: of the command
    elapsed_s: float  #: time of all checks
    interrupted: bool = False  #: whether it was stopped
    checks: tuple[CheckFacts, ...] = ()  #: the checks, in the order of their verdicts
    left_out: tuple[LeftOutFacts, ...] = ()  #: checks that were not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyFacts:
    """The notes of a nightly run."""

    job: str  #: its name
    facts: Mapping[str, str]  #: that results depend on, by name
    #: name, earlier text and present text of each fact that changed
    changes: tuple[tuple[str, str, str], ...] = ()
    missed: int = 0  #: how many runs are missing since the last one
    unfinished: str = ""  #: how an earlier run ended
    build: str  #: a name of the measured build that remains valid
    answer: str = ""  #: the answer, as it was printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report of a session or a gate."""

    meta: Meta  #: when, where and how it was run
    headline: tuple[str, ...]  #: the measuring conditions
    rows: tuple[Noted, ...]  #: the records, in the order they were noted
    gate: GateFacts | None = None  #: of a gate, its answer
    nightly: NightlyFacts | None = None  #: for a nightly run, its notes


def row_data(noted: Noted) -> dict[str, Any]:
    """A noted record as plain data."""
    around = {key: getattr(noted, key) for key in AROUND}
    return {**around, **encode(noted.record)}


def row_of(data: Mapping[str, Any]) -> Noted:
    """The noted record in plain data; it raises the errors of `codec.decode`."""
    around = {key: decode(str, data[key]) for key in AROUND if key in data}
    return Noted(record=decode_as(AnyRecord, data), **around)


def read(document: object, where: str) -> Report:
    """The report in a JSON document of this schema."""
    if not isinstance(document, dict) or "rows" not in document:
        raise unusable(f"{where} is not a report of pytest-asperf: it has no rows")
    head = read_head(document, where)
    listed = part(lambda: list(document["rows"]), where, "its head")
    found = tuple(
        part(partial(row_of, data), where, f"row {n}") for n, data in enumerate(listed, start=1)
    )
    machines = head.meta.machines
    if machines and (lost := next((one for one in found if one.machine not in machines), None)):
        problem = (
            f"its head is not as pytest-asperf writes it: no machine {shown(lost.machine, 60)}"
        )
        raise unusable(f"{where}: {problem}")
    return replace(head, rows=found)


def read_head(document: Mapping[str, Any], where: str) -> Report:
    """A report without its records, which may be long.

    Raises:
        ConfigError: it has another schema, or its head is malformed.
    """
    if (schema := document.get("schema")) != SCHEMA:
        # No released version wrote an earlier schema, so none can be named to read the report.
        is_earlier = type(schema) is int and 0 < schema < SCHEMA
        again = "measure again; the earlier report stays as it is"
        raise ConfigError(
            f"{where} has schema {shown(schema, 80)}, and this version reads schema {SCHEMA}",
            why="its keys may have another meaning",
            remedy=again if is_earlier else "use the version of pytest-asperf that wrote it",
        )
    head: Report = part(lambda: _head(document), where, "its head")
    return head


def _head(document: Mapping[str, Any]) -> Report:
    gate, nightly = (document.get(key) for key in ("gate", "nightly"))
    return Report(
        meta=decode(Meta, document["meta"]),
        headline=tuple(decode(str, line) for line in document["headline"]),
        rows=(),
        gate=None if gate is None else decode(GateFacts, gate),
        nightly=None if nightly is None else decode(NightlyFacts, nightly),
    )


def part(read_it: Callable[[], Any], where: str, what: str) -> Any:
    """A part of a document; ConfigError names the place if it is malformed."""
    try:
        return read_it()
    except MALFORMED as error:
        missing = isinstance(error, KeyError)
        reason = f"{error} is missing" if missing else printable(error, 200)
        raise unusable(f"{where}: {what} is not as pytest-asperf writes it: {reason}") from None


def read_json(path: Path, *, lines: bool = False) -> list[Any]:
    """The JSON values of a file or a pipe: one, or one a line; ConfigError if it has none."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise unusable(f"{path} has more than {_MAX_BYTES >> 20} MiB")
        parts = text.splitlines() if lines else [text]
        return [json.loads(part, parse_constant=_refuse) for part in parts]
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        problem = f"{path} is not JSON: {printable(error, 200)}"
    raise unusable(problem)


def _refuse(constant: str) -> None:
    # Python's json accepts NaN and Infinity, which no report has.
    raise ValueError(f"{constant} is not JSON")


def unusable(what: str) -> ConfigError:
    """The error for a file that is no report."""
    return ConfigError(what, remedy=_REMEDY)


def of_each_machine(report: Report) -> list[Report]:
    """A report for each machine; one of a single machine as it is."""
    meta = report.meta
    if not meta.machines:
        return [report]
    return [
        Report(
            meta=replace(meta, host=one.host, python=one.python, machine=one.machine, machines={}),
            headline=one.headline,
            rows=tuple(row for row in report.rows if row.machine == name),
        )
        for name, one in meta.machines.items()
    ]


def known_machines(report: Report) -> list[Report]:
    """The report without the machines that never reported their facts: these measured nothing."""
    every = of_each_machine(report)
    if every == [report]:
        return every
    return [one for one in every if one.meta.machine.id]
