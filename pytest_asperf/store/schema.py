"""The tables by their columns' names; `migrations` makes them, with types and indices."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

#: The newest revision of `migrations/versions`.
HEAD: Final = "0002"
#: Where alembic keeps the revision that a database has.
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
