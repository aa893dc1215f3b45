"""Stores a report, or keeps it on this machine until the store can be reached again.

A report that grows is stored with each result, so that a session that is killed keeps its results.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pytest_asperf.errors import ConfigError, StoreError, without_passwords
from pytest_asperf.hardware.records import store_record
from pytest_asperf.records.report import read
from pytest_asperf.store import START_WAIT_S, WAIT_S, open_store
from pytest_asperf.store.figures import (
    UNFINISHED,
    NewSeries,
    Recorded,
    SeriesKey,
    StoredPoint,
    document_digest,
)

if TYPE_CHECKING:
    from pytest_asperf.store.records import Store

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Kept:
    """The destination of a report."""

    address: str  #: of the store, without a password
    recorded: Recorded | None = None  #: the store's result; None if the report is kept here instead
    sent: int = 0  #: how many earlier reports that were kept here are in the store now
    refused: tuple[str, ...] = ()  #: remarks on reports that were kept here and cannot be read
    removed: int = 0  #: how many sessions were too old to stay
    error: StoreError | None = None  #: why it could not be stored
    path: Path | None = None  #: the file that it is kept in
    #: the latest points of the series that it adds to, if they were requested
    history: tuple[tuple[SeriesKey, list[StoredPoint]], ...] = ()

    @property
    def complaint(self) -> str:
        """The message that it is not stored, and its place now; empty if it is stored."""
        if self.error is None:
            return ""
        return (
            f"not stored: {self.error.what}; the report is kept in {self.path}, and the next run "
            "that reaches the store sends it, or: asperf history send"
        )

    def lines(self) -> Iterator[str]:
        """The remarks on the stored report."""
        if self.recorded is not None:
            n = self.recorded.n_figures
            yield f"stored {n} figure{'s' * (n != 1)} in {self.address}"
            yield from self.recorded.notes()
        if self.sent:
            were = "reports that were" if self.sent > 1 else "report that was"
            yield f"sent {self.sent} {were} kept on this machine"
        yield from self.refused
        if self.removed:
            yield f"removed {self.removed} old session{'s' * (self.removed != 1)}"


def check_store(address: str) -> None:
    """Reject a store that cannot accept a report, before anything is measured.

    One that may pass, such as a server that is down, is no reason: reports are kept until then.
    """
    try:
        with open_store(address, wait_s=START_WAIT_S) as store:
            store.check_writable()
    except StoreError as error:
        if not error.may_pass:
            raise


@dataclass(slots=True)
class GrowingReport:
    """A report of a session that runs: its stored part is replaced as it grows."""

    address: str  #: of the store
    cache: Path  #: where the report is kept if the store cannot be used
    #: at the end older sessions are removed from the store; None for nothing
    keep_days: int | None = None
    _id: str = field(default_factory=lambda: uuid4().hex)
    _began: list[NewSeries] = field(default_factory=list)
    _is_reached: bool = True

    def update(self, document: Mapping[str, object]) -> None:
        """Store the results so far, or keep them on this machine.

        Raises:
            CacheError: it could neither be stored nor kept.
        """
        try:
            if self._is_reached:
                with open_store(self.address, wait_s=START_WAIT_S) as store:
                    self._began += store.record(document, kind=UNFINISHED, draft=self._id).began
                    return
        except StoreError:  # tests need not wait for it one by one; the end tries it again
            self._is_reached = False
        self._wait(document, UNFINISHED, self._draft_path)

    def finish(self, document: Mapping[str, object], *, kind: str, n_points: int = 0) -> Kept:
        """Store a report and those that were kept before; if that fails, keep it in the cache.

        With `n_points`, so many of the latest points of its series are read back.

        Raises:
            CacheError: it could neither be stored nor kept.
            ConfigError: an extra is missing.
        """
        shown = without_passwords(self.address)
        try:
            with open_store(self.address, wait_s=WAIT_S) as store:
                recorded = store.record(document, kind=kind, draft=self._id)
                self._draft_path.unlink(missing_ok=True)
                recorded = replace(recorded, began=(*self._began, *recorded.began))
                sent, refused = send(store, self._draft_path.parent)
                history = (
                    store.history(read(document, "the report"), last=n_points) if n_points else ()
                )
                days = self.keep_days
                removed = store.retain(time.time() - days * _DAY_S) if days else 0
                return Kept(shown, recorded, sent, refused, removed, history=tuple(history))
        except StoreError as error:
            path = self._draft_path.with_stem(document_digest(document))
            self._wait(document, kind, path)
            self._draft_path.unlink(missing_ok=True)
            return Kept(shown, error=error, path=path)

    @property
    def _draft_path(self) -> Path:
        return unsent_folder(self.cache, self.address) / f"{self._id}.json"

    def _wait(self, document: Mapping[str, object], kind: str, path: Path) -> None:
        record = {"kind": kind, "draft": self._id, "document": document}
        store_record(path, record, what="a report for the store")


def unsent_folder(cache: Path, address: str) -> Path:
    """The folder of reports that wait for a store."""
    digest = hashlib.sha256(without_passwords(address).encode()).hexdigest()
    return cache / "unsent" / digest[:12]


def send(store: Store, folder: Path) -> tuple[int, tuple[str, ...]]:
    """Store the reports that wait in a folder; how many, and remarks on those that cannot be read.

    Several sessions may do so at once: a report that is there already is not stored again. A file
    that is no report gets another name, so that it is not tried again.
    """
    sent, refused = 0, list[str]()
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            recorded = store.record(
                kept["document"],
                kind=str(kept["kind"]),
                draft=str(kept.get("draft", "")),
                where=str(path),
            )
        except FileNotFoundError:
            continue  # another session has sent it
        except (ValueError, TypeError, KeyError, ConfigError) as error:
            problem = error.what if isinstance(error, ConfigError) else f"{path} is no report"
            moved = path.replace(path.with_suffix(".refused"))
            refused.append(f"not sent: {problem}; it is kept as {moved.name}")
            continue
        sent += recorded.is_new
        path.unlink(missing_ok=True)
    return sent, tuple(refused)
