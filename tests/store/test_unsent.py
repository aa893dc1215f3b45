"""Reports that a store cannot take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.errors import CacheError
from pytest_asperf.store.opening import open_store
from pytest_asperf.store.unsent import keep, send, unsent_folder
from tests.store.documents import night, rate

if TYPE_CHECKING:
    from pathlib import Path

#: Nothing listens there.
DOWN = "postgresql://me:secret@127.0.0.1:1/d"
NIGHT = night(rate(100))


def test_a_report_waits_for_its_own_store(tmp_path: Path) -> None:
    """It is kept once however often it is tried, and sent whole to the store that it is for."""
    for _ in range(2):
        kept = keep(NIGHT, DOWN, kind="gate", cache=tmp_path)
        assert kept.recorded is None
        assert "secret" not in kept.complaint
    waiting = unsent_folder(tmp_path, DOWN)
    (file,) = waiting.iterdir()
    assert json.loads(file.read_text("utf-8")) == {"kind": "gate", "document": NIGHT}
    other = str(tmp_path / "h.db")
    assert keep(night(rate(1)), other, kind="session", cache=tmp_path).sent == 0
    with open_store(str(tmp_path / "later.db")) as store:
        assert (send(store, waiting), send(store, waiting)) == (1, 0)
        assert [one.kind for one in store.sessions()] == ["gate"]
    assert not list(waiting.iterdir())


def test_where_nothing_can_be_kept_it_is_an_error(tmp_path: Path) -> None:
    """Neither the store nor the cache takes it: the session has to say so."""
    (tmp_path / "cache").write_text("a file in place of the folder")
    with pytest.raises(CacheError, match="a report for the store cannot be kept in "):
        keep(NIGHT, DOWN, kind="session", cache=tmp_path / "cache")


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "gate"}', '{"kind": "x", "document": {}}'])
def test_a_file_that_is_no_report_holds_up_no_other(text: str, tmp_path: Path) -> None:
    """What somebody else put there stays under another name, and is not tried again."""
    address = str(tmp_path / "h.db")
    folder = unsent_folder(tmp_path, address)
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(text)
    kept = keep(NIGHT, address, kind="session", cache=tmp_path)
    assert kept.recorded is not None
    assert (kept.recorded.is_new, kept.sent) == (True, 0)
    assert [path.name for path in folder.iterdir()] == ["x.refused"]
