"""Stores of both kinds. The tests of PostgreSQL start a server of their own on a socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Folders of the server's programs in distributions, in addition to PATH.
_PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")


def _program(name: str) -> str | None:
    found = [str(path) for place in _PLACES for path in Path("/").glob(f"{place[1:]}/{name}")]
    return max(found) if found else shutil.which(name)


def _other_user() -> dict[str, Any]:
    """Arguments of a process that root may not be: the server rejects to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


class PostgresServer:
    """A server in a folder of its own, reached through a socket."""

    def __init__(self, folder: Path, initdb: str, postgres: str, user: dict[str, Any]) -> None:
        self._data = folder / "data"
        self._postgres, self._user = postgres, user
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        made = [initdb, "-D", str(self._data), "-U", "asperf", "-A", "trust", "--no-sync"]
        made += ["-E", "UTF8", "--no-locale", "--no-instructions"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://asperf@/postgres?host={self._folder}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        settings = ("-c", "listen_addresses=", "-c", "fsync=off", "-k", str(self._folder))
        self._process = subprocess.Popen(
            [self._postgres, "-D", str(self._data), *settings],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._user,
        )
        for _ in range(200):
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server ended"
                self._wait(0.05)
            else:
                return
        raise AssertionError("the server did not start")

    def _wait(self, seconds: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def stop(self) -> None:
        """End it at once, as a lost server is; its files stay."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: an immediate shutdown
            self._process.wait(30)
            self._process = None


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server; its tests are skipped if none is installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres = _program("initdb"), _program("postgres")
    if not (initdb and postgres):
        pytest.skip("no PostgreSQL server is installed (initdb, postgres)")
    user = _other_user()
    # A socket's path may have 107 letters, fewer than pytest's own folders often have.
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user:
            os.chown(folder, user["user"], user["group"])
        found = PostgresServer(folder, initdb, postgres, user)
        found.start()
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store, of each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "history.db")
        return
    url = request.getfixturevalue("server").url
    yield url
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
