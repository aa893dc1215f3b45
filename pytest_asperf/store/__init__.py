"""Reports that are kept, and the series that they add to.

A session's JSON document is stored whole. Its searchable columns are stored in addition: one row
for each figure, in a series of figures of one kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ConfigError

if TYPE_CHECKING:
    from pytest_asperf.store.records import Store


#: Seconds that a writer waits for others of the same file, and for a server to answer.
WAIT_S: Final = 20.0
#: The same at the start of a session, where a store that is not ready is no reason to stop.
START_WAIT_S: Final = 5.0


def open_store(address: str, *, create: bool = True, wait_s: float = WAIT_S) -> Store:
    """The store at a path or a `postgresql://` URL, at this version's schema.

    It waits `wait_s` seconds for other writers, and for a server to answer.

    Raises:
        ConfigError: an extra is missing, or there is no store at the address.
        StoreError: it is another program's, of a newer version, or cannot be used.
    """
    try:
        from pytest_asperf.store.database import open_database  # noqa: PLC0415  # an extra
        from pytest_asperf.store.records import Store  # noqa: PLC0415  # as above
    except ImportError as error:
        raise ConfigError(
            f"a store needs {error.name or error}, which is not installed",
            why="no report can be stored or read without it",
            remedy="pip install 'pytest-asperf[store]'",
        ) from None
    return Store(open_database(address, create=create, wait_s=wait_s))
