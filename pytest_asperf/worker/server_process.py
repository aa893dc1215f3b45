"""A server that we start, on a free port of the loopback, and a model that it serves.

The server is waited for, and ended with the model.
"""

from __future__ import annotations

import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .engine import Facts, RefusalError
from .resident import peak_of
from .served_model import CANNOT, ServedModel
from .serving.client import get_request
from .serving.record import Endpoint, Timeouts
from .tool_process import ToolRun

if TYPE_CHECKING:
    from .served_api import Api

_HOST: Final = "127.0.0.1"
_ASK_EVERY_S: Final = 0.02
_ASKING: Final = Timeouts(connect_s=1.0, headers_s=5.0, idle_s=5.0, total_s=5.0)
#: A log's line may be written this late, as a server has a thread of its own for it.
_LOGGED_LATE_S: Final = 5.0
#: A connection is lost before its server's process has ended.
_DYING_S: Final = 0.5
#: Another process may use a free port before the server does.
_PORTS_TRIED: Final = 3
_PORT_TAKEN: Final = re.compile(r"address already in use|couldn't bind", re.IGNORECASE)

#: The command that starts a server on a port.
Command = tuple[Path, "Sequence[str]"]


class ServerProcess:
    """A running server, ready for requests.

    Args:
        name: its name in messages.
        command: its program and arguments, for a port.
        ready_path: the path that it answers with 200 once it is ready.

    Raises:
        RefusalError: it ended before it was ready; with the last lines of its log.
    """

    def __init__(self, name: str, command: Callable[[int], Command], ready_path: str) -> None:
        began_ns = time.perf_counter_ns()
        for tried in range(_PORTS_TRIED):
            self.endpoint = Endpoint("http", _HOST, _free_port())
            program, arguments = command(self.endpoint.port)
            self.run = ToolRun(program, arguments, name=name, kind="server")
            if self._is_ready(ready_path):
                break
            how = self.run.how_it_ended()
            is_taken = any(map(_PORT_TAKEN.search, self.run.log))
            if not is_taken or tried == _PORTS_TRIED - 1:
                failure = self.run.failure(f"{how} before it was ready")
                is_absent = any("ModuleNotFoundError: " in line for line in self.run.log)
                raise RefusalError("package" if is_absent else "load", str(failure))
        self.load_ns = time.perf_counter_ns() - began_ns

    def _is_ready(self, path: str) -> bool:
        """Wait until it is; False if it ends. The parent's deadline bounds the wait."""
        while not self.run.has_ended:
            record = get_request(self.endpoint, path, timeouts=_ASKING)
            # Another process may use the port, and answer.
            if record.status == 200 and not self.run.has_ended:
                return True
            time.sleep(_ASK_EVERY_S)
        return False

    def log_until(self, last: re.Pattern[str]) -> list[str]:
        """Its log, after a wait for the line that ends a load."""
        until_s = time.monotonic() + _LOGGED_LATE_S
        while not any(map(last.search, self.run.log)):
            if self.run.has_ended or time.monotonic() > until_s:
                break
            time.sleep(_ASK_EVERY_S)
        return self.run.log

    def require_alive(self) -> None:
        """Raise if it has ended."""
        if self.run.has_ended:
            raise self.run.failure(f"{self.run.how_it_ended()} between two requests")

    def failure(self, what: str) -> RefusalError:
        """The error for a reply that is none; how the server ended, if it did."""
        until_s = time.monotonic() + _DYING_S
        while not self.run.has_ended and time.monotonic() < until_s:
            time.sleep(_ASK_EVERY_S)
        ended = f"{self.run.how_it_ended()}: " if self.run.has_ended else ""
        return self.run.failure(f"{ended}{what}")

    @property
    def peak_rss_bytes(self) -> int:
        """Its peak resident memory so far; 0 if the system does not report it."""
        return peak_of(str(self.run.pid))

    def end(self) -> None:
        """End it."""
        self.run.end()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((_HOST, 0))
        port: int = sock.getsockname()[1]
        return port


class StartedModel(ServedModel):
    """A model in a server of its own, which is ready."""

    def __init__(self, server: ServerProcess) -> None:
        self._server, endpoint = server, server.endpoint
        try:
            facts, context = self.learn(server)
            super().__init__(
                self.api(endpoint), lambda prompt: self.count(endpoint, prompt), facts, context
            )
        except BaseException:
            server.end()
            raise
        self.facts["load_ns"] = server.load_ns

    def api(self, endpoint: Endpoint) -> Api:
        """The API of the server."""
        raise NotImplementedError

    def count(self, endpoint: Endpoint, prompt: str) -> int:
        """The tokens that the server makes of a prompt."""
        raise NotImplementedError

    def learn(self, server: ServerProcess) -> tuple[Facts, Facts]:
        """The resolved facts of load and context."""
        raise NotImplementedError

    def require_alive(self) -> None:
        """Raise if the server has ended."""
        self._server.require_alive()

    def failure(self, what: str) -> RefusalError:
        """The error for a reply that is none, with the server's last lines."""
        return self._server.failure(what)

    @property
    def peak_rss_bytes(self) -> int:
        """The server's peak resident memory so far."""
        return self._server.peak_rss_bytes

    def close(self) -> None:
        """End the server."""
        self._server.end()


def on_loopback(*words: str | Path, options: Sequence[str]) -> Callable[[int], Command]:
    """The command that begins with these words, and listens on a port of the loopback."""
    program, *before = words

    def command(port: int) -> Command:
        where = ["--host", _HOST, "--port", str(port)]
        return Path(program), [*map(str, before), *where, *options]

    return command


def options_of(program: str, settings: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """A server's options for settings; raises for a setting that it does not have."""
    options: list[str] = []
    for key, value in settings.items():
        if key in names:
            options += [names[key], str(value)]
        elif key != "server_args":
            reason = CANNOT.get(key, f"{program} has no setting {key}")
            raise RefusalError("unsupported", reason)
    return [*options, *shlex.split(settings.get("server_args", ""))]
