"""A database at this version's schema: SQLite by path, PostgreSQL by URL.

The tables are declared by their columns' names; `migrations` makes them, with types and indices.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from pytest_asperf.errors import ConfigError, StoreError, printable, without_passwords

#: The newest revision of `migrations/versions`.
HEAD: Final = "0002"
#: alembic's table with the revision of a database.
VERSION_TABLE: Final = "asperf_schema"

sessions: Final = sa.table(
    "asperf_session",
    sa.column("id"),  # digest of the document
    sa.column("kind"),
    sa.column("time"),  # when it began, seconds since the epoch
    sa.column("stored_at"),  # by the writer's clock
    sa.column("clock_back_s"),  # added to both, where that clock had been set back
    *map(sa.column, ("machine", "host", "hardware", "version", "document")),
)

series: Final = sa.table(
    "asperf_series",
    sa.column("id"),  # digest of the key
    *map(sa.column, ("machine", "engine", "model", "model_sha256", "settings", "metric")),
    *map(sa.column, ("unit", "anchor")),
)

points: Final = sa.table(
    "asperf_point",
    sa.column("series"),
    sa.column("session"),
    sa.column("row"),  # its place in the document
    *map(sa.column, ("time", "value", "low", "high", "n", "outcome", "test", "provenance")),
)


#: SQLite's application id in a file's head, and the key of the lock under which one session at a
#: time migrates a server's tables: "aspf".
_OURS: Final = 0x61737066
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_WRITES: Final = "asperf_writes"
_LOST: Final = "no report can be stored there or read from it"
_OTHER: Final = "name a file that does not exist yet, or one that pytest-asperf made"

#: By a part of a driver's message: the event, the remedy, and True if it may pass by itself.
_REASONS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    (r"locked", "another process keeps it locked", "run it again when that one is done", True),
    (r"readonly|read-only", "it is read-only", "make file and folder writable", False),
    (r"unable to open", "it cannot be opened", "make file and folder readable", False),
    (r"is full|no space left|could not extend", "its disk is full", "free space", True),
    (r"not a database", "it is a file of another program", _OTHER, False),
    (
        r"malformed|corrupt",
        "it is corrupt",
        "restore a backup, or recover the rest: sqlite3 FILE .recover",
        False,
    ),
    (
        r"starting up|shutting down|recovery mode|too many (clients|connections)",
        "the server is not ready",
        "run it again later",
        True,
    ),
    (
        r"FATAL:|permission denied|authentication",
        "the server rejects",
        "check user, password (PGPASSWORD or ~/.pgpass), database and rights",
        False,
    ),
    (
        r"connect|server closed|timeout|could not translate|resolve|terminat",
        "the server cannot be reached",
        "check that it runs, and the host and port in the URL",
        True,
    ),
)

_UNKNOWN: Final = ("", "it cannot be used", "see the driver's message", False)


class Database:
    """An open store; every transaction is whole or not there."""

    def __init__(self, engine: sa.Engine, address: str) -> None:
        self._engine = engine
        self.address = address  #: path or URL for a reader, without its password

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that reads."""
        with self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes: committed at the end, or undone."""
        engine = self._engine.execution_options(**{_WRITES: True})
        with self._explained(), engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise _explained(self.address, str(error.orig)) from None


def open_database(address: str, *, create: bool, wait_s: float) -> Database:
    """The database at a path or URL, migrated to this version's schema.

    It waits `wait_s` seconds. `create` makes a file or tables that do not exist.
    """
    if "://" in address:
        database = _postgres(address, wait_s)
    else:
        database = _sqlite(Path(address), wait_s, create=create)
    try:
        _migrate(database, create=create)
    except BaseException:
        database.close()
        raise
    return database


def _postgres(address: str, wait_s: float) -> Database:
    try:
        url = sa.make_url(re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", address))
        engine = sa.create_engine(url, connect_args={"connect_timeout": max(2, round(wait_s))})
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            "the URL of the store cannot be read",
            why=_LOST,
            remedy="write it as in postgresql://user@host:5432/database",
        ) from None
    except ImportError:
        raise ConfigError(
            "a store on a PostgreSQL server needs psycopg, which is not installed",
            why=_LOST,
            remedy="pip install 'pytest-asperf[postgres]'",
        ) from None
    return Database(engine, printable(without_passwords(address)))


def _sqlite(path: Path, wait_s: float, *, create: bool) -> Database:
    shown = printable(path)
    problem = ""
    if path.is_dir():
        problem = f"the store {shown} is a folder"
    elif not path.parent.is_dir():
        problem = f"the folder of the store {shown} does not exist"
    elif not create and not path.exists():
        problem = f"there is no store at {shown}"
    if problem:
        remedy = "name a file in a folder that exists" if create else "name a store that exists"
        raise ConfigError(problem, why=_LOST, remedy=remedy)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": wait_s}
    )

    # Python's driver would begin transactions by itself, and later than a writer must.
    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return Database(engine, shown)


def _migrate(database: Database, *, create: bool) -> None:
    """Make the tables, or bring old ones to this version's schema."""
    with database.reading() as connection:
        revision = _revision(connection, database.address)
    if revision == HEAD:
        return
    if not revision and not create:
        raise ConfigError(
            f"the store {database.address} is empty",
            remedy="name one that a session or a gate wrote to",
        )
    with database.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_OURS)))
        if _revision(connection, database.address) == HEAD:
            return  # by another session meanwhile
        upgrade(connection, HEAD)
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA application_id = {_OURS}")


def upgrade(connection: sa.Connection, revision: str) -> None:
    """Bring the tables to a revision."""
    # Only the first session of a store needs it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, revision)


def _revision(connection: sa.Connection, address: str) -> str:
    """The schema's revision; empty if there are no tables yet."""
    inspector = sa.inspect(connection)
    if connection.dialect.name == "sqlite":
        owner = connection.exec_driver_sql("PRAGMA application_id").scalar()
        if owner != _OURS and (owner or inspector.get_table_names()):
            raise _explained(address, "not a database of ours")
    if not inspector.has_table(VERSION_TABLE):
        return ""
    column: sa.ColumnClause[str] = sa.column("version_num")
    revision = str(connection.scalar(sa.select(column).select_from(sa.table(VERSION_TABLE))))
    if revision not in {f"{number:04}" for number in range(1, int(HEAD) + 1)}:
        raise StoreError(
            f"the store {address} has schema {printable(revision, 40)}, and this version supports "
            f"up to {HEAD}",
            why="a newer version of pytest-asperf made it, and its columns may have another "
            "meaning",
            remedy="update pytest-asperf here, or name another store",
        )
    return revision


def _explained(address: str, message: str) -> StoreError:
    known = (reason for reason in _REASONS if re.search(reason[0], message, re.IGNORECASE))
    _, happened, remedy, may_pass = next(known, _UNKNOWN)
    said = printable(message.strip().partition("\n")[0], 300)
    error = StoreError(f"the store {address}: {happened} ({said})", why=_LOST, remedy=remedy)
    error.may_pass = may_pass
    return error
