import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_asperf.store import open_store
from pytest_asperf.store.unsent import unsent_folder
from tests.plugin.conftest import Project

SPEED = """
@pytest.mark.model("fake:F16")
def test_speed(throughput):
    assert throughput("tg8") >= 1
"""


def _stored(path: Path) -> list[tuple[str, int]]:
    with open_store(str(path), create=False) as store:
        return sorted((series.key.metric, series.n) for series in store.series())


def test_sessions_add_to_their_series(project: Project) -> None:
    """The report is kept whole, a page shows the sessions before, and another setting is noted."""
    reports = ("--asperf-report=json:r.json", "--asperf-report=html:r.html")
    project.test(SPEED)
    project.run("--asperf-store=h.db", *reports)
    assert "<h2>History</h2>" not in (project.path / "r.html").read_text("utf-8")
    project.config(store="h.db")
    result = project.run(*reports)
    result.stdout.fnmatch_lines(["asperf: stored 1 figure in */h.db"])
    page = (project.path / "r.html").read_text("utf-8")
    assert "<h2>History</h2>" in page
    assert "<h3>tg8 fake:F16, tok/s</h3>" in page
    written = json.loads((project.path / "r.json").read_text("utf-8"))
    with open_store(str(project.path / "h.db")) as store:
        last = store.sessions()[-1]
        assert store.document(last.id) == written
        assert not store.record(written).is_new  # the file equals the stored one
    assert (last.kind, last.machine) == ("session", written["meta"]["machine"]["id"])
    project.test(SPEED.replace('F16"', 'F16", threads=2'))
    result = project.run()
    result.stdout.fnmatch_lines(["asperf: new series *, tg8 fake*: not the settings of *"])
    assert _stored(project.path / "h.db") == [("tg8", 1), ("tg8", 2)]


def test_old_sessions_are_removed_at_the_end(project: Project) -> None:
    """`store_keep` of the configuration, or the option; a removal is reported."""
    project.config(store="h.db")
    project.test(SPEED)
    project.run()
    with closing(sqlite3.connect(project.path / "h.db")) as store:  # as if it were of last week
        store.execute("UPDATE asperf_point SET time = time - 604800")
        store.execute("UPDATE asperf_session SET time = time - 604800")
        store.commit()
    project.run("--asperf-store-keep=8")
    assert _stored(project.path / "h.db") == [("tg8", 2)]
    project.config(store="h.db", store_keep=6)
    result = project.run()
    result.stdout.fnmatch_lines(["asperf: removed 1 old session"])
    assert _stored(project.path / "h.db") == [("tg8", 2)]


def test_a_killed_session_keeps_what_its_tests_measured(project: Project) -> None:
    """A test's measurements are stored when the test ends, and the session is marked."""
    killed = "\n\ndef test_end():\n    import os\n    os.kill(os.getpid(), 9)\n"
    project.test(SPEED + killed)
    result = project.pytester.runpytest_subprocess(*project.plugins, "--asperf-store=h.db")
    assert result.ret == -9
    with open_store(str(project.path / "h.db")) as store:
        (session,) = store.sessions()
        (row,) = [row for row in store.document(session.id)["rows"] if row["outcome"]]
    assert session.kind == "unfinished"
    assert row["test"] == "test_it.py::test_speed"
    assert _stored(project.path / "h.db") == [("tg8", 1)]


def test_a_store_that_breaks_during_the_session_fails_it(
    project: Project, session_cache: Path
) -> None:
    """The report waits, and a person gets the remedy."""
    project.test(SPEED + "\n\ndef test_harm():\n    open('h.db', 'w').write('harm' * 2000)\n")
    result = project.run("--asperf-store=h.db")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["asperf: not stored: *it is a file of another program*"])
    (file,) = unsent_folder(session_cache, str(project.path / "h.db")).iterdir()
    waits = json.loads(file.read_text("utf-8"))
    assert (waits["kind"], len(waits["document"]["assertions"])) == ("session", 1)


def test_nothing_is_stored_unless_asked_for(project: Project) -> None:
    """No file is made if nothing is measured."""
    project.test(SPEED)
    project.run("--collect-only", "--asperf-store=h.db")
    assert not list(project.path.rglob("*.db"))


def test_what_cannot_be_stored_now_is_sent_later(project: Project, session_cache: Path) -> None:
    """A store that another program keeps locked loses nothing, and the session stays green."""
    project.test(SPEED)
    path = project.path / "h.db"
    open_store(str(path)).__exit__(None, None, None)
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
    assert _stored(path) == [("tg8", 2)]


@pytest.mark.parametrize(
    ("store", "says"),
    [
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
    result.stdout.fnmatch_lines(["asperf: not stored: *the server cannot be reached*"])
