"""Unusable stores, and those of other versions and programs."""

import os
import pwd
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from pytest_asperf.errors import ConfigError, StoreError
from pytest_asperf.store import database as schema
from pytest_asperf.store import open_store
from pytest_asperf.store.database import _MIGRATIONS, _explained, open_database
from pytest_asperf.store.unsent import check_store
from tests.store.conftest import PostgresServer
from tests.store.documents import night, rate

_VERSION: sa.ColumnClause[str] = sa.column("version_num")
VERSIONS = sa.table(schema.VERSION_TABLE, _VERSION)
NIGHT = night(rate(100))


@contextmanager
def writing(address: str) -> Iterator[sa.Connection]:
    """A transaction in addition to the store's own."""
    with (
        closing(open_database(address, create=True, wait_s=5)) as database,
        database.writing() as connection,
    ):
        yield connection


def _other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def _text(path: Path) -> None:
    path.write_text("not a database " * 100, encoding="utf-8")


def _torn(path: Path) -> None:
    with open_store(str(path)) as store:
        store.record(NIGHT)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (_other_program, "it is a file of another program"),
        (_text, "it is a file of another program"),
        (_torn, "it is corrupt"),
        (Path.mkdir, "is a folder"),
    ],
)
def test_a_file_that_is_no_store_stays_as_it_is(
    made: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    """The error names the file's kind, and not a byte of it changes."""
    path = tmp_path / "h.db"
    made(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises((StoreError, ConfigError), match=says), open_store(str(path)) as store:
        store.record(night(rate(1)))
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_where_nothing_is(tmp_path: Path) -> None:
    """A reader makes no file, and no folder is made for one."""
    with pytest.raises(ConfigError, match=r"there is no store at .*h\.db"):
        open_store(str(tmp_path / "h.db"), create=False)
    (tmp_path / "empty.db").touch()
    with pytest.raises(ConfigError, match=r"empty\.db is empty"):
        open_store(str(tmp_path / "empty.db"), create=False)
    with pytest.raises(ConfigError, match=r"the folder of the store .* does not exist"):
        open_store(str(tmp_path / "no" / "h.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.db"]


def test_a_locked_store_may_pass(tmp_path: Path) -> None:
    """A database locked by another process is worth another try, which the error says."""
    path = tmp_path / "h.db"
    with open_store(str(path), wait_s=0.1) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="another process keeps it locked") as caught:
            store.record(NIGHT)
        other.rollback()
        assert caught.value.may_pass
        assert store.record(NIGHT).is_new


def test_a_full_store_keeps_what_it_has(tmp_path: Path) -> None:
    """A report that does not fit leaves nothing of itself behind."""
    path = tmp_path / "h.db"
    with open_store(str(path)) as store:
        store.record(NIGHT)

    def fill() -> None:
        with (
            closing(open_database(str(path), create=False, wait_s=1)) as database,
            database.writing() as connection,
        ):
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            values = {column.name: 0 for column in schema.sessions.c} | {"document": "x" * 10**6}
            connection.execute(schema.sessions.insert(), [values])

    with pytest.raises(StoreError, match="its disk is full") as caught:
        fill()
    assert caught.value.may_pass
    with open_store(str(path)) as store:
        assert len(store.sessions()) == 1


@contextmanager
def plain_user() -> Iterator[None]:
    """Be a user who may not write to read-only files, as root may."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_store_is_read_and_not_written() -> None:
    """An unusable store raises at once, before anything is measured."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "h.db"
        with open_store(str(path)) as store:
            store.record(NIGHT)
        path.chmod(0o444)
        with plain_user():
            with open_store(str(path), create=False) as store:
                assert len(store.series()) == 1
            with pytest.raises(StoreError, match="it is read-only") as caught:
                check_store(str(path))
    assert not caught.value.may_pass


def test_an_old_schema_is_migrated(address: str) -> None:
    """An earlier version's content is there with the tables of this one."""
    with open_store(address) as store:
        store.record(NIGHT)
    with writing(address) as connection:  # as the first version made it
        connection.exec_driver_sql("DROP INDEX asperf_series_by_metric")
        connection.execute(sa.update(VERSIONS).values(version_num="0001"))
    with open_store(address) as store:
        assert [one.n for one in store.series()] == [1]
    with writing(address) as connection:
        assert connection.scalar(sa.select(_VERSION).select_from(VERSIONS)) == schema.HEAD
        indices = sa.inspect(connection).get_indexes(schema.series.name)
        assert "asperf_series_by_metric" in {index["name"] for index in indices}


def test_a_newer_schema_is_refused(address: str) -> None:
    """Its columns may mean something else, so nothing is read and nothing written."""
    open_store(address).__exit__(None, None, None)
    with writing(address) as connection:
        connection.execute(sa.update(VERSIONS).values(version_num="9999"))
    with pytest.raises(
        StoreError, match="has schema 9999, and this version supports up to"
    ) as caught:
        open_store(address)
    assert "update pytest-asperf" in caught.value.remedy


def test_the_tables_are_those_that_the_queries_name(address: str) -> None:
    """Migrations and queries describe equal columns, and the newest revision is known."""
    with writing(address) as connection:
        inspector = sa.inspect(connection)
        for table in (schema.sessions, schema.series, schema.points):
            found = [column["name"] for column in inspector.get_columns(table.name)]
            assert found == [column.name for column in table.c]
    assert ScriptDirectory(str(_MIGRATIONS)).get_heads() == [schema.HEAD]


def test_a_server_that_is_down_may_pass(server: PostgresServer) -> None:
    """A server that is down, or lost between two reports, is an error with its name."""
    with open_store(server.url) as store:
        store.record(NIGHT)
        server.stop()
        try:
            with pytest.raises(StoreError, match="the server cannot be reached") as caught:
                store.record(night(rate(2)))
            assert caught.value.may_pass
        finally:
            server.start()
        assert len(store.sessions()) == 1
        store.record(night(rate(2)))
        assert len(store.sessions()) == 2
        store.prune(1e12)


@pytest.mark.parametrize(
    ("message", "may_pass", "says"),
    [
        ('FATAL:  password authentication failed for user "x"', False, "the server rejects"),
        ('FATAL:  database "x" does not exist', False, "the server rejects"),
        ("FATAL:  the database system is starting up", True, "the server is not ready"),
        ("FATAL:  sorry, too many clients already", True, "the server is not ready"),
        ("server closed the connection unexpectedly", True, "the server cannot be reached"),
        ("could not extend file: No space left on device", True, "its disk is full"),
        ("something nobody has seen", False, "it cannot be used"),
    ],
)
def test_what_may_pass_is_told_from_what_may_not(
    message: str, says: str, *, may_pass: bool
) -> None:
    """A report waits if the fault may pass; otherwise a person has to act."""
    error = _explained("postgresql://h/d", message)
    assert (error.may_pass, says in error.what, message in error.what) == (may_pass, True, True)


@pytest.mark.parametrize(
    ("library", "store", "extra"),
    [("sqlalchemy", "h.db", "store"), ("psycopg", "postgresql://h/d", "postgres")],
)
def test_without_the_extra_the_error_names_it(
    library: str, store: str, extra: str, tmp_path: Path
) -> None:
    """The libraries are missed only if a store is requested."""
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from pytest_asperf.store import open_store\n"
        f"open_store({store!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"needs {library}, which is not installed" in done.stderr
    assert f"pip install 'pytest-asperf[{extra}]'" in done.stderr


def test_a_password_is_not_shown() -> None:
    """Not in an error, before the host or behind the question mark."""
    for url in ("postgresql://me:secret@[bad", "postgresql://me:secret@127.0.0.1:1/d"):
        with pytest.raises((StoreError, ConfigError)) as caught:
            open_store(url, wait_s=2)
        assert "secret" not in str(caught.value)
