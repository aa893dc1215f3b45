"""Stores documents, and gives back sessions and series."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from pytest_asperf.errors import ConfigError, printable, shown, suggest
from pytest_asperf.records.codec import JsonObject
from pytest_asperf.records.report import Report, read
from pytest_asperf.store.database import Database, points, series, sessions
from pytest_asperf.store.figures import (
    UNFINISHED,
    NewSeries,
    Recorded,
    SeriesKey,
    SeriesValue,
    StoredPoint,
    StoredSeries,
    StoredSession,
    Value,
    document_digest,
    figures_of,
    origin_of,
    time_of,
)

#: A clock counts as set back if it is further behind than this, in seconds.
_JITTER_S: Final = 2.0
_KEY: Final = tuple(field.name for field in fields(SeriesKey))
_OF_A_SESSION: Final = [sessions.c[field.name] for field in fields(StoredSession)]
#: The order of sessions that began in one second: reports have no finer time.
_OF_ONE_SECOND: Final = (sessions.c.stored_at, sessions.c.id)


class Store:
    """A store that is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address  #: path or URL for a reader, without its password

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._database.close()

    def record(
        self,
        document: Mapping[str, object],
        *,
        kind: str = "session",
        is_live: bool = True,
        clock_back_s: float = 0.0,
        draft: str = "",
        where: str = "the report",
    ) -> Recorded:
        """Store a document, all of it or nothing; one that is there already stays as it is.

        Args:
            document: a report, of a session or a gate.
            kind: its writer: `session`, `gate`, `nightly`; or `UNFINISHED`.
            is_live: it was measured just now on this machine. If the clock is then behind the
                machine's last stored session, the session is put after that.
            clock_back_s: added to its time otherwise.
            draft: the id of its part that was stored before it was finished, which this replaces.
            where: for messages.

        Raises:
            ConfigError: it is no such document.
            StoreError: the store cannot be written.
        """
        report = read(document, where)
        origin, began = origin_of(report), time_of(report, where)
        figures = figures_of(report, where)
        session = draft if draft and kind == UNFINISHED else document_digest(document)
        with self._database.writing() as connection:
            if draft:
                _remove(connection, sessions.c.id == draft)
            now = time.time()
            back_s = _clock_back_s(connection, origin.machine, now) if is_live else clock_back_s
            values = {
                **asdict(origin),
                "id": session,
                "kind": printable(kind, 32),
                "time": began + back_s,
                "stored_at": now + back_s,
                "clock_back_s": back_s,
                "document": json.dumps(document, ensure_ascii=False, allow_nan=False),
            }
            if not _insert_new(connection, sessions, [values]):
                return Recorded(session, is_new=False)
            new = _add_series(connection, {figure.key.id: figure.key for figure in figures})
            if figures:
                rows = [_point(figure, session, began + back_s) for figure in figures]
                connection.execute(points.insert(), rows)
        return Recorded(
            session, is_new=True, n_figures=len(figures), began=tuple(new), clock_back_s=back_s
        )

    def check_writable(self) -> None:
        """Raise StoreError if nothing can be stored."""
        none = sa.select(sessions.c.id).where(sa.false())
        with self._database.writing() as connection:
            connection.execute(sessions.insert().from_select(["id"], none))

    def series(self) -> list[StoredSeries]:
        """All series, the one with the latest point first."""
        counted = (
            sa.select(
                points.c.series,
                sa.func.count().label("n"),
                sa.func.min(points.c.time).label("first"),
                sa.func.max(points.c.time).label("last"),
            )
            .group_by(points.c.series)
            .subquery()
        )
        query = (
            sa.select(series, counted.c.n, counted.c.first, counted.c.last)
            .join(counted, counted.c.series == series.c.id)
            .order_by(counted.c.last.desc(), series.c.id)
        )
        with self._database.reading() as connection:
            return [
                StoredSeries(row["id"], _key(row), row["n"], row["first"], row["last"])
                for row in connection.execute(query).mappings()
            ]

    def points(self, series_id: str, *, last: int | None = None) -> list[StoredPoint]:
        """The points of a series, or so many of the last, in the order of their time."""
        columns = [points.c[field.name] for field in fields(StoredPoint)]
        # Their first time by the index: newer SQLite would sort the series for the last few.
        of_series = points.c.series == series_id
        by_time = sa.select(points.c.time).where(of_series).order_by(points.c.time.desc())
        since = sa.select(sa.func.min(by_time.limit(last).subquery().c.time)).scalar_subquery()
        query = (
            sa.select(*columns)
            .join(sessions, sessions.c.id == points.c.session)
            .where(of_series, points.c.time >= since)
            .order_by(*(one.desc() for one in (points.c.time, *_OF_ONE_SECOND, points.c.row)))
            .limit(last)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [_stored_point(row) for row in reversed(rows)]

    def history(self, report: Report, *, last: int) -> list[tuple[SeriesKey, list[StoredPoint]]]:
        """So many points of each series that a report adds to, in the report's order."""
        keys = {one.key.id: one.key for one in figures_of(report, "the report")}
        return [(key, self.points(id_, last=last)) for id_, key in keys.items()]

    def sessions(self, *, kind: str = "", machine: str = "") -> list[StoredSession]:
        """Sessions in the order of their time; of one kind, or one machine, if these are named."""
        query = sa.select(*_OF_A_SESSION).order_by(sessions.c.time, *_OF_ONE_SECOND)
        for column, wanted in ((sessions.c.kind, kind), (sessions.c.machine, machine)):
            query = query.where(column == wanted) if wanted else query
        with self._database.reading() as connection:
            return [StoredSession(*row) for row in connection.execute(query)]

    def pruned(self) -> set[str]:
        """The ids of the sessions whose documents were removed."""
        with self._database.reading() as connection:
            return set(
                connection.scalars(sa.select(sessions.c.id).where(sessions.c.document == ""))
            )

    def document(self, session: str) -> JsonObject:
        """The document of a session."""
        query = sa.select(sessions.c.document).where(sessions.c.id == session)
        with self._database.reading() as connection:
            text = connection.scalar(query)
        if not text:
            raise ConfigError(
                f"the store {self.address} has no document of session {session}",
                why="it was never stored there, or pruned",
                remedy="asperf history sessions lists what is there",
            )
        document: JsonObject = json.loads(text)
        return document

    def find_series(self, name: str) -> StoredSeries:
        """The series whose id begins with a text."""
        every = self.series()
        found = [one for one in every if one.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            f"{len(found)} series of {self.address} begin with {shown(name, 40)}"
            + ("" if found else suggest(name, [one.id for one in every])),
            remedy="asperf history lists them by their ids",
        )

    def find_session(self, name: str) -> StoredSession:
        """The session whose id begins with a text."""
        found = [one for one in self.sessions() if one.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            f"{len(found)} sessions of {self.address} begin with {shown(name, 40)}",
            remedy="asperf history sessions lists them by their ids",
        )

    def prune(self, before: float, *, only_documents: bool = False) -> int:
        """Remove sessions that began before a time, in seconds since the epoch; how many.

        With `only_documents` their raw runs go and the points of their series stay.
        """
        old = sessions.c.time < before
        with self._database.writing() as connection:
            if only_documents:
                filled = old & (sessions.c.document != "")
                return connection.execute(
                    sessions.update().where(filled).values(document="")
                ).rowcount
            n = _remove(connection, old)
            used = sa.select(points.c.series).where(points.c.series == series.c.id)
            connection.execute(series.delete().where(~used.exists()))
        return n

    def retain(self, since: float) -> int:
        """Remove sessions that began before a time, in seconds since the epoch; their number.

        A session with the last point of a series stays, and so do points of ratios: states and
        comparisons use them.
        """

        def old(table: sa.FromClause) -> sa.ColumnElement[bool]:
            return (table.c.time < since) & (table.c.document != "")

        session, point, later = sessions.alias(), points.alias(), points.alias()
        is_later = later.c.time > point.c.time
        is_followed = sa.exists().where(later.c.series == point.c.series, is_later)
        of_old = point.c.session.in_(sa.select(session.c.id).where(old(session)))
        last = sa.select(point.c.session).where(of_old, ~is_followed)
        gone = old(sessions) & sessions.c.id.not_in(last)
        ratios = sa.select(series.c.id).where(series.c.anchor != "")
        with self._database.writing() as connection:
            connection.execute(
                points.delete().where(
                    points.c.session.in_(sa.select(sessions.c.id).where(gone)),
                    points.c.series.not_in(ratios),
                )
            )
            has_points = sa.exists().where(points.c.session == sessions.c.id)
            n = connection.execute(sessions.delete().where(gone, ~has_points)).rowcount
            emptied = sessions.update().where(gone).values(document="")
            return n + connection.execute(emptied).rowcount


def _remove(connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    """Remove sessions and their points; how many sessions."""
    ids = sa.select(sessions.c.id).where(which)
    connection.execute(points.delete().where(points.c.session.in_(ids)))
    return connection.execute(sessions.delete().where(which)).rowcount


def _clock_back_s(connection: sa.Connection, machine: str, now: float) -> float:
    """How far the clock is behind this machine's last stored session."""
    latest = sa.select(sa.func.max(sessions.c.stored_at)).where(sessions.c.machine == machine)
    behind_s = (connection.scalar(latest) or now) - now
    return behind_s if behind_s > _JITTER_S else 0.0


def _add_series(connection: sa.Connection, keys: Mapping[str, SeriesKey]) -> list[NewSeries]:
    """Add the series that are not there yet, in one order for all writers; give these."""
    there = set(connection.scalars(sa.select(series.c.id).where(series.c.id.in_(keys))))
    missing = sorted(keys.keys() - there)
    if not missing:
        return []
    metrics = {keys[one].metric for one in missing}
    query = sa.select(series).where(series.c.metric.in_(metrics))
    known = [_key(row) for row in connection.execute(query).mappings()]
    rows = [{"id": one, **asdict(keys[one])} for one in missing]
    _insert_new(connection, series, rows)
    return [_new_series(keys[one], known) for one in missing]


def _insert_new(
    connection: sa.Connection, table: sa.TableClause, rows: list[dict[str, object]]
) -> int:
    """Insert rows but for those that are there, or that another writer has just added; how many."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table).on_conflict_do_nothing()
    return connection.execute(insert, rows, execution_options={"preserve_rowcount": True}).rowcount


def _new_series(key: SeriesKey, known: Iterable[SeriesKey]) -> NewSeries:
    """A new series, with the one before it that differs from it least."""
    alike = {one: _changed(key, one) for one in known if one.metric == key.metric}
    nearest = {
        one: changed
        for one, changed in alike.items()
        if one.model == key.model or one.model_sha256 == key.model_sha256
    }
    if not nearest:
        return NewSeries(key)
    after = min(nearest, key=lambda one: len(nearest[one]))
    return NewSeries(key, after.id, nearest[after])


def _changed(key: SeriesKey, other: SeriesKey) -> tuple[str, ...]:
    of_both = zip(
        _KEY, map(key.__getattribute__, _KEY), map(other.__getattribute__, _KEY), strict=True
    )
    return tuple(name for name, own, others in of_both if own != others and name != "model")


def _key(row: sa.RowMapping) -> SeriesKey:
    return SeriesKey(**{name: row[name] for name in _KEY})


def _stored_point(row: sa.RowMapping) -> StoredPoint:
    provenance = tuple(map(tuple, json.loads(row["provenance"])))
    return StoredPoint(**{**row, "provenance": provenance})


def _point(figure: SeriesValue, session: str, began: float) -> dict[str, object]:
    return {
        "series": figure.key.id,
        "session": session,
        "row": figure.row,
        "time": began,
        **{field.name: getattr(figure, field.name) for field in fields(Value)},
        "provenance": json.dumps(figure.provenance),
    }
