"""The memory of a nightly job: its last run, and a run that was begun and did not end."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from pytest_asperf.errors import BusyError, CacheError, ConfigError, printable
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.holder import holder_of, noted
from pytest_asperf.hardware.identity import machine_id
from pytest_asperf.hardware.records import store_record
from pytest_asperf.nightly.night import night_text
from pytest_asperf.records.report import read_head
from pytest_asperf.store.opening import START_WAIT_S, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Nightly sessions of other jobs that are passed over in the search for the last of this one.
_LOOKED_AT: Final = 50
_LONGEST: Final = 400
#: What `figures_of` calls the engine's build.
_BUILD: Final = "build"


@dataclass(frozen=True, slots=True)
class LastNight:
    """The last night of a job on this machine.

    Attributes:
        time: when it began, seconds since the epoch.
        facts: what its results depended on.
        build: a name of the build that was measured, which still means that build.
    """

    time: float
    facts: Mapping[str, str]
    build: str

    def named(self, now: Mapping[str, str], *, anchor: str) -> str:
        """A name of the build of that night, if tonight's facts have another one; else nothing."""
        before = self.facts.get(_BUILD)
        if not before or before == now.get(_BUILD, before):
            return ""
        return anchor if before == now["anchor"] else self.build


def last_night(address: str, job: str) -> LastNight | None:
    """The last night that is in a store; None if there is none.

    Raises:
        StoreError: the store cannot be reached, or of no use.
    """
    with open_store(address, wait_s=START_WAIT_S) as store:
        for session in store.sessions(kind="nightly", machine=machine_id(detect()))[
            :-_LOOKED_AT:-1
        ]:
            try:
                night = read_head(store.document(session.id), session.id).night
            except ConfigError:  # pruned
                continue
            if night is not None and night.job == job:
                return LastNight(session.time, night.facts, night.build)
    return None


def mark_path(cache: Path, job: str) -> Path:
    """The file that says that a night of a job was begun; its lock is beside it."""
    return cache / "nightly" / f"{hashlib.sha256(job.encode()).hexdigest()[:12]}.json"


@contextmanager
def one_at_a_time(cache: Path, job: str, began: float) -> Iterator[str]:
    """Hold a job's lock, and give what became of a night that did not end; empty if all did.

    Raises:
        BusyError: the job runs already.
        CacheError: the lock cannot be taken.
    """
    mark = mark_path(cache, job)
    lock = FileLock(mark.with_suffix(".lock"))
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        holder = holder_of(mark.with_suffix(".lock"))
        raise BusyError(
            f"the job {printable(job)} is running already: {holder or mark}",
            why="two at once would disturb each other and measure the same night twice",
            remedy="wait until it is over, or give this one another --name",
        ) from None
    except OSError as error:
        raise CacheError(
            f"the lock of the job {printable(job)} cannot be taken: {error.strerror}",
            why="two at once would disturb each other",
            remedy=f"make {mark.parent} writable, or set ASPERF_CACHE to another folder",
        ) from error
    try:
        with noted(mark.with_suffix(".lock")):
            unfinished = _unfinished(mark)
            store_record(mark, {"began": began}, what="the mark of a night")
            try:
                yield unfinished
            except Exception as error:
                ended = {"began": began, "error": printable(error, _LONGEST)}
                store_record(mark, ended, what="the mark of a night")
                raise
            mark.unlink(missing_ok=True)
    finally:
        lock.release()


def _unfinished(mark: Path) -> str:
    try:
        found = json.loads(mark.read_text("utf-8"))
        when = night_text(float(found["began"]))
        error = found.get("error")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "a night before left a mark that cannot be read"
    if error is None:
        return f"the night of {when} was interrupted"
    return f"the night of {when} ended in an error: {printable(error, _LONGEST).splitlines()[0]}"
