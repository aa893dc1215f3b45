"""The nightly run: its record, the changes since the last one, and nights without a run.

The memory of a job is its last run, and a run that was begun and did not end.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.hardware.machine_lock import alone
from pytest_asperf.hardware.records import machine_id, store_record
from pytest_asperf.records.kinds import ran_of
from pytest_asperf.records.report import Report, read_head
from pytest_asperf.store import START_WAIT_S, open_store
from pytest_asperf.store.figures import LOG_RATIO, SeriesValue, figures_of

_DAY_S: Final = 86_400.0
#: A night counts as missing if the run before is longer ago than this.
_LATE: Final = 1.5


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differs from the last run's."""

    label: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.label}: {self.before} -> {self.now}"


def facts_of(report: Report, power: str) -> dict[str, str]:
    """The facts that the result of tonight's pairs with the fixed baseline depends on, by name."""
    figures = figures_of(report, "the nightly run")
    facts: dict[str, list[str]] = {}
    for figure in figures:
        if figure.key.unit != LOG_RATIO:
            continue
        for label, text in figure.provenance:
            facts.setdefault(label, []).append(text)
        facts.setdefault("model", []).append(_model(figure))
        facts.setdefault("settings", []).append(f"{figure.key.metric} {figure.key.settings}")
        facts.setdefault(_FIXED, []).append(figure.key.anchor)
    told = {label: ", ".join(dict.fromkeys(texts)) for label, texts in facts.items()}
    return {**told, "power mode": power}


def _model(figure: SeriesValue) -> str:
    hashes = "/".join(part[:12] for part in figure.key.model_sha256.split("/"))
    return f"{figure.key.model} {hashes}"


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> list[FactChange]:
    """The facts that differ; a fact that only one run has is no change."""
    return [
        FactChange(label, before[label], text)
        for label, text in now.items()
        if label in before and before[label] != text
    ]


def missed_nights(last: float, now: float) -> int:
    """The number of nights without a measurement since the last run, by times in seconds."""
    days = (now - last) / _DAY_S
    return round(days) - 1 if days > _LATE else 0


def restorable(build: Build, report: Report) -> str:
    """A text that names tonight's build in later runs too, when `current` is another one.

    It is the text that named it, if that is no release that an index has.
    """
    from pytest_asperf.config.build_sources import Interpreter  # noqa: PLC0415
    from pytest_asperf.config.engines import DISTRIBUTIONS  # noqa: PLC0415

    verdicts = [noted.record for noted in report.rows if isinstance(noted.record, Verdict)]
    candidates = [ran_of(verdict)[-1] for verdict in verdicts if verdict.compared]
    known = {(ran.library, ran.version) for ran in candidates if ran.library in DISTRIBUTIONS}
    if not isinstance(build.source, Interpreter) or len(known) != 1:
        return build.name
    ((library, version),) = known
    _, comma, settings = build.name.partition(",")
    return f"{library}=={version}{comma}{settings}"


def night_text(time: float) -> str:
    """A run by its date and time, in the reader's zone."""
    return dt.datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M")


#: Nightly sessions of other jobs that are passed over in the search for the last of this one.
_LOOKED_AT: Final = 50
_LONGEST: Final = 400
#: The name in `figures_of` for the engine's build.
_BUILD: Final = "build"
#: The name of the fixed baseline among the facts.
_FIXED: Final = "fixed baseline"


@dataclass(frozen=True, slots=True)
class LastNight:
    """The last run of a job on this machine."""

    time: float  #: when it began, seconds since the epoch
    facts: Mapping[str, str]  #: the facts that its results depended on
    build: str  #: a name of the build that was measured, which still means that build

    def named(self, now: Mapping[str, str], *, anchor: str) -> str:
        """A name of the last run's build, if tonight's facts have another one; otherwise empty."""
        before = self.facts.get(_BUILD)
        if not before or before == now.get(_BUILD, before):
            return ""
        return anchor if before == now[_FIXED] else self.build


def last_night(address: str, job: str) -> tuple[LastNight | None, list[ConfigError]]:
    """The last run in a store, None if there is none; and errors of reports that cannot be read.

    A report that cannot be read may be a later run of the job, or one of another job.
    """
    unread = []
    with open_store(address, wait_s=START_WAIT_S) as store:
        for session in store.sessions(kind="nightly", machine=machine_id(detect()))[
            :-_LOOKED_AT:-1
        ]:
            try:
                document = store.document(session.id)
            except ConfigError:  # pruned
                continue
            try:
                night = read_head(document, f"session {session.id[:8]} of the store").nightly
            except ConfigError as error:
                unread.append(error)
                continue
            if night is not None and night.job == job:
                return LastNight(session.time, night.facts, night.build), unread
    return None, unread


def mark_path(cache: Path, job: str) -> Path:
    """The file of a job's begun run; its lock is in the same folder."""
    return cache / "nightly" / f"{hashlib.sha256(job.encode()).hexdigest()[:12]}.json"


@contextmanager
def one_at_a_time(cache: Path, job: str, began: float) -> Iterator[str]:
    """Lock a job, and return the fate of a run that did not end; empty if all did."""
    mark = mark_path(cache, job)
    with alone(
        mark,
        f"the job {printable(job)}",
        remedy="wait until it is over, or give this one another --name",
    ):
        unfinished = _unfinished(mark)
        store_record(mark, {"began": began}, what="the mark of a nightly run")
        try:
            yield unfinished
        except Exception as error:
            ended = {"began": began, "error": printable(error, _LONGEST)}
            store_record(mark, ended, what="the mark of a nightly run")
            raise
        mark.unlink(missing_ok=True)


def _unfinished(mark: Path) -> str:
    try:
        found = json.loads(mark.read_text("utf-8"))
        when = night_text(float(found["began"]))
        error = found.get("error")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "an earlier nightly run left a mark that cannot be read"
    if error is None:
        return f"the nightly run of {when} was interrupted"
    return (
        f"the nightly run of {when} ended in an error: {printable(error, _LONGEST).splitlines()[0]}"
    )
