"""A model whose server we start: restarted after it died, and ended with the model."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from .engine import RefusalError
from .served_model import CANNOT, Api, ServedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .engine import Facts
    from .server_process import ServerProcess
    from .serving.record import Endpoint


class StartedModel(ServedModel):
    """A model in a server of its own.

    Args:
        start: starts the server, and waits until it is ready.
    """

    def __init__(self, start: Callable[[], ServerProcess]) -> None:
        self._start = start
        self._server = start()
        try:
            facts, context = self.learn(self._server)
            endpoint = self._server.endpoint
            super().__init__(
                self.api(endpoint), lambda prompt: self.count(endpoint, prompt), facts, context
            )
        except BaseException:
            self._server.end()
            raise
        self.facts["load_ns"] = self._server.load_ns

    def api(self, endpoint: Endpoint) -> Api:
        """How the server is asked."""
        raise NotImplementedError

    def count(self, endpoint: Endpoint, prompt: str) -> int:
        """The tokens that the server makes of a prompt."""
        raise NotImplementedError

    def learn(self, server: ServerProcess) -> tuple[Facts, Facts]:
        """The resolved facts of load and context."""
        raise NotImplementedError

    def require_alive(self) -> None:
        """Refuse to go on if the server has ended."""
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


def options_of(program: str, settings: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """A server's options for settings; refused is a setting that it does not have."""
    options: list[str] = []
    for key, value in settings.items():
        if key in names:
            options += [names[key], str(value)]
        elif key != "server_args":
            reason = CANNOT.get(key, f"{program} has no setting {key}")
            raise RefusalError("unsupported", reason)
    return [*options, *shlex.split(settings.get("server_args", ""))]
