"""Reports that a store cannot accept."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from pytest_asperf.errors import CacheError
from pytest_asperf.store import open_store
from pytest_asperf.store.unsent import GrowingReport, send, unsent_folder
from tests.store.documents import night, rate

#: Nothing listens there.
DOWN = "postgresql://me:secret@127.0.0.1:1/d"
NIGHT = night(rate(100))


def test_a_report_waits_for_its_own_store(tmp_path: Path) -> None:
    """It is kept once however often it is tried, and sent whole to the store that it is for."""
    for _ in range(2):
        kept = GrowingReport(DOWN, tmp_path).finish(NIGHT, kind="gate")
        assert kept.recorded is None
        assert "secret" not in kept.complaint
    waiting = unsent_folder(tmp_path, DOWN)
    (file,) = waiting.iterdir()
    waits = json.loads(file.read_text("utf-8"))
    assert (waits["kind"], waits["document"]) == ("gate", NIGHT)
    other = str(tmp_path / "h.db")
    assert GrowingReport(other, tmp_path).finish(night(rate(1)), kind="session").sent == 0
    with open_store(str(tmp_path / "later.db")) as store:
        assert [send(store, waiting), send(store, waiting)] == [(1, ()), (0, ())]
        assert [one.kind for one in store.sessions()] == ["gate"]
    assert not list(waiting.iterdir())


def test_where_nothing_can_be_kept_it_is_an_error(tmp_path: Path) -> None:
    """Neither the store nor the cache accepts it: the session has to report it."""
    (tmp_path / "cache").write_text("a file in place of the folder")
    with pytest.raises(CacheError, match="a report for the store cannot be kept in "):
        GrowingReport(DOWN, tmp_path / "cache").finish(NIGHT, kind="session")


_EARLIER = json.dumps({"kind": "x", "document": NIGHT | {"schema": 2}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no report"),
        ("[]", "is no report"),
        ('{"kind": "gate"}', "is no report"),
        ('{"kind": "x", "document": {}}', "is not a report of pytest-asperf: it has no rows"),
        (_EARLIER, "has schema 2, and this version reads schema 3"),
    ],
)
def test_a_file_that_is_no_report_holds_up_no_other(text: str, says: str, tmp_path: Path) -> None:
    """A file that cannot be read is named, stays under another name, and is not tried again."""
    address = str(tmp_path / "h.db")
    folder = unsent_folder(tmp_path, address)
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(text)
    kept = GrowingReport(address, tmp_path).finish(NIGHT, kind="session")
    assert kept.recorded is not None
    assert (kept.recorded.is_new, kept.sent) == (True, 0)
    (remark,) = kept.refused
    assert remark == f"not sent: {folder / 'x.json'} {says}; it is kept as x.refused"
    assert remark in kept.lines()
    assert [path.name for path in folder.iterdir()] == ["x.refused"]
    assert (folder / "x.refused").read_text() == text


def _kept(address: str) -> list[tuple[str, int]]:
    with open_store(address) as store:
        return [(one.kind, len(store.document(one.id)["rows"])) for one in store.sessions()]


def test_a_report_that_grows_is_there_before_it_is_finished(address: str, tmp_path: Path) -> None:
    """A kill leaves the last part, marked; the end replaces it, and names the new series."""
    growing = GrowingReport(address, tmp_path)
    rows = [rate(100), rate(90, threads=2)]
    growing.update(night(rows[0]))
    growing.update(night(*rows))
    GrowingReport(address, tmp_path).update(night(rate(1, threads=9)))  # killed
    assert sorted(_kept(address)) == [("unfinished", 1), ("unfinished", 2)]
    kept = growing.finish(night(*rows, duration_s=9), kind="session")
    assert sorted(_kept(address)) == [("session", 2), ("unfinished", 1)]
    assert kept.recorded is not None
    assert len(kept.recorded.began) == 2
    with open_store(address) as store:
        assert [one.n for one in store.series()] == [1, 1, 1]


def test_a_report_that_grows_outlives_its_store(tmp_path: Path) -> None:
    """A report that the store cannot accept waits here; its end replaces it, for any sender."""
    address, cache = str(tmp_path / "h.db"), tmp_path / "cache"
    growing, waiting = GrowingReport(address, cache), unsent_folder(cache, address)
    growing.update(NIGHT)
    with pytest.MonkeyPatch.context() as patch, closing(sqlite3.connect(address)) as other:
        patch.setattr("pytest_asperf.store.unsent.START_WAIT_S", 0.05)
        other.execute("BEGIN EXCLUSIVE")
        growing.update(night(rate(100), rate(90, threads=2)))
        other.rollback()
    assert len(list(waiting.iterdir())) == 1
    with open_store(address) as store:  # another session
        assert send(store, waiting) == (1, ())
    assert _kept(address) == [("unfinished", 2)]
    growing.update(night(rate(100), rate(90, threads=2), rate(1, threads=3)))
    assert len(list(waiting.iterdir())) == 1
    kept = growing.finish(NIGHT, kind="gate")
    assert (kept.sent, _kept(address)) == (0, [("gate", 1)])
    assert not list(waiting.iterdir())


def test_a_clock_set_back_during_a_session_moves_it_nowhere(address: str, tmp_path: Path) -> None:
    """The session's own stored report is no earlier session."""
    growing = GrowingReport(address, tmp_path)
    growing.update(NIGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda real=time.time: real() - 7200)
        kept = growing.finish(NIGHT, kind="session")
    assert kept.recorded is not None
    assert kept.recorded.clock_back_s == 0


def test_where_no_store_answers_only_the_end_waits(tmp_path: Path) -> None:
    """One file of a session, for any earlier state."""
    growing = GrowingReport(DOWN, tmp_path)
    growing.update(night(rate(1)))
    growing.finish(NIGHT, kind="gate")
    (file,) = unsent_folder(tmp_path, DOWN).iterdir()
    assert json.loads(file.read_text("utf-8"))["document"] == NIGHT
