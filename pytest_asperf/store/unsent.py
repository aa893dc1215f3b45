"""Stores a report, or keeps it on this machine until the store can be reached again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_asperf.errors import ConfigError, StoreError, without_passwords
from pytest_asperf.hardware.records import store_record
from pytest_asperf.store.figures import document_digest
from pytest_asperf.store.opening import START_WAIT_S, WAIT_S, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_asperf.store.figures import SeriesKey
    from pytest_asperf.store.records import Store
    from pytest_asperf.store.stored import Recorded, StoredPoint


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a report went.

    Attributes:
        address: of the store, without a password.
        recorded: what storing it did; None if it is kept here instead.
        sent: how many earlier reports that were kept here are in the store now.
        error: why it could not be stored.
        path: the file that it is kept in.
        history: the latest points of the series that it adds to, if they were asked for.
    """

    address: str
    recorded: Recorded | None = None
    sent: int = 0
    error: StoreError | None = None
    path: Path | None = None
    history: tuple[tuple[SeriesKey, list[StoredPoint]], ...] = ()

    @property
    def complaint(self) -> str:
        """That it is not stored, and what becomes of it; empty if it is."""
        if self.error is None:
            return ""
        return (
            f"not stored: {self.error.what}; the report is kept in {self.path}, and the next run "
            "that reaches the store sends it, or: asperf history send"
        )

    def lines(self) -> Iterator[str]:
        """What is to be said of what was stored."""
        if self.recorded is not None:
            n = self.recorded.n_figures
            yield f"stored {n} figure{'s' * (n != 1)} in {self.address}"
            yield from self.recorded.notes()
        if self.sent:
            were = "reports that were" if self.sent > 1 else "report that was"
            yield f"sent {self.sent} {were} kept on this machine"


def check_store(address: str) -> None:
    """Refuse a store that will not take a report, before anything is measured.

    One that may pass, such as a server that is down, is no reason: reports are kept until then.
    """
    try:
        with open_store(address, wait_s=START_WAIT_S) as store:
            store.check_writable()
    except StoreError as error:
        if not error.may_pass:
            raise


def keep(
    document: Mapping[str, Any], address: str, *, kind: str, cache: Path, n_points: int = 0
) -> Kept:
    """Store a report and those that were kept before; if that fails, keep it in the cache.

    With `n_points`, so many of the latest points of its series are read back.

    Raises:
        CacheError: it could neither be stored nor kept.
        ConfigError: an extra is missing.
    """
    folder = unsent_folder(cache, address)
    shown = without_passwords(address)
    try:
        with open_store(address, wait_s=WAIT_S) as store:
            recorded = store.record(document, kind=kind)
            sent = send(store, folder)
            history = store.history(document, last=n_points) if n_points else ()
            return Kept(shown, recorded, sent, history=tuple(history))
    except StoreError as error:
        path = folder / f"{document_digest(document)}.json"
        store_record(path, {"kind": kind, "document": document}, what="a report for the store")
        return Kept(shown, error=error, path=path)


def unsent_folder(cache: Path, address: str) -> Path:
    """Where reports for a store wait."""
    digest = hashlib.sha256(without_passwords(address).encode()).hexdigest()
    return cache / "unsent" / digest[:12]


def send(store: Store, folder: Path) -> int:
    """Store the reports that wait in a folder; how many.

    Several sessions may do so at once: a report that is there already is not stored again. A file
    that is no report gets another name, so that it is not tried again.
    """
    sent = 0
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            recorded = store.record(kept["document"], kind=str(kept["kind"]), where=str(path))
        except FileNotFoundError:
            continue  # another session has sent it
        except (ValueError, TypeError, KeyError, ConfigError):
            path.replace(path.with_suffix(".refused"))
            continue
        sent += recorded.is_new
        path.unlink(missing_ok=True)
    return sent
