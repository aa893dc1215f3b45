from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.store.opening import open_store
from pytest_asperf.store.unsent import unsent_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plugin.conftest import Project

SPEED = """
@pytest.mark.model("fake:F16")
def test_speed(throughput):
    assert_throughput(throughput("tg8"), at_least=1)
"""


def _stored(path: Path) -> list[tuple[str, int]]:
    with open_store(str(path), create=False) as store:
        return sorted((series.key.metric, series.n) for series in store.series())


def test_a_session_is_stored(project: Project) -> None:
    """The report is kept whole, and its figures add to series; a second session goes on."""
    project.test(SPEED)
    for _ in range(2):
        result = project.run("--asperf-store=h.db", "--asperf-report=json:r.json")
        result.stdout.fnmatch_lines(["asperf: stored 1 figure in */h.db"])
    assert _stored(project.path / "h.db") == [("tg8", 2)]
    written = json.loads((project.path / "r.json").read_text("utf-8"))
    with open_store(str(project.path / "h.db")) as store:
        last = store.sessions()[-1]
        assert store.document(last.id) == written
    assert last.machine == written["meta"]["machine"]["id"]


def test_the_page_shows_the_sessions_before(project: Project) -> None:
    """With a store and a page, each series has a chart; the first session has no history."""
    project.test(SPEED)
    shown = []
    for _ in range(2):
        project.run("--asperf-store=h.db", "--asperf-report=html:r.html")
        shown.append((project.path / "r.html").read_text("utf-8"))
    assert ["<h2>History</h2>" in page for page in shown] == [False, True]
    assert "<h3>tg8 fake:F16</h3>" in shown[1]
    assert "sessions in the order they ran" in shown[1]


def test_settings_that_changed_begin_a_series(project: Project) -> None:
    """The summary says which series begins, and what differs from the one before."""
    project.config(store="h.db")
    project.test(SPEED)
    project.run()
    project.test(SPEED.replace('F16"', 'F16", threads=2'))
    result = project.run()
    result.stdout.fnmatch_lines(["asperf: new series *, tg8 fake*: not the settings of *"])


def test_nothing_is_stored_unless_asked_for(project: Project) -> None:
    """Without the option no file is made, and with it none where nothing is measured."""
    project.test(SPEED)
    project.run()
    project.run("--collect-only", "--asperf-store=h.db")
    assert not list(project.path.rglob("*.db"))


def test_workers_of_xdist_store_one_session(project: Project) -> None:
    """The controller stores what all of them measured."""
    pytest.importorskip("xdist")
    project.test(SPEED + SPEED.replace("speed", "other").replace("tg8", "tg16"))
    project.run("-n", "1", "--asperf-store=h.db").assert_outcomes(passed=2)
    assert _stored(project.path / "h.db") == [("tg16", 1), ("tg8", 1)]
    with open_store(str(project.path / "h.db")) as store:
        assert len(store.sessions()) == 1


def test_what_cannot_be_stored_now_is_sent_later(project: Project, session_cache: Path) -> None:
    """A store that another program keeps locked loses nothing, and the session stays green."""
    project.test(SPEED)
    path = project.path / "h.db"
    project.run("--asperf-store=h.db")
    with pytest.MonkeyPatch.context() as patch, closing(sqlite3.connect(path)) as other:
        for name in ("WAIT_S", "START_WAIT_S"):
            patch.setattr(f"pytest_asperf.store.unsent.{name}", 0.05)
        other.execute("BEGIN EXCLUSIVE")
        result = project.run("-q", "--asperf-store=h.db")
        other.rollback()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["asperf: not stored: the store */h.db: another process keeps it*"])
    waiting = unsent_folder(session_cache, str(path))
    assert len(list(waiting.iterdir())) == 1
    result = project.run("--asperf-store=h.db")
    result.stdout.fnmatch_lines(["asperf: sent 1 report that was kept on this machine"])
    assert not list(waiting.iterdir())
    assert _stored(path) == [("tg8", 3)]


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("mysql://host/db", "'mysql://host/db' is not usable: it is a URL of another kind"),
        ("no/h.db", "the folder of the store */no/h.db does not exist"),
        ("test_it.py", "it is a file of another program"),
    ],
)
def test_an_unusable_store_is_refused_before_anything_is_measured(
    store: str, says: str, project: Project
) -> None:
    """A typing error costs no measurement."""
    project.test(SPEED)
    result = project.run(f"--asperf-store={store}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{says}*"])


def test_a_password_stays_out_of_the_report(project: Project) -> None:
    """The command line is in the report, and so would be a URL's password."""
    project.test(SPEED)
    url = "postgresql://me:secret@127.0.0.1:1/d"
    result = project.run(f"--asperf-store={url}", "--asperf-report=json:r.json")
    text = (project.path / "r.json").read_text("utf-8")
    assert "postgresql://me:***@127.0.0.1:1/d" in text
    assert "secret" not in text + result.stdout.str()
    result.stdout.fnmatch_lines(["asperf: not stored: *the server is out of reach*"])
