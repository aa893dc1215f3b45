"""mlx-lm's own server, of the interpreter's environment, with its own defaults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .mlx_engine import MlxEngine
from .mlx_tokenizer import load_tokenizer
from .served_api import Api
from .served_model import CANNOT, served_facts, served_text, unseen_context
from .server_process import ServerProcess, StartedModel, on_loopback, options_of

if TYPE_CHECKING:
    from .engine import Facts, LoadedModel
    from .serving.record import Endpoint

_NAME: Final = "mlx_lm.server"
#: By setting: the server's option.
_OPTIONS: Final = {
    "kv_bits": "--kv-bits",
    "kv_group_size": "--kv-group-size",
    "n_batch": "--prefill-step-size",
    "parallel": "--decode-concurrency",
}


class MlxServerEngine(MlxEngine):
    """The engine: the library, whose server runs in a process of its own."""

    def describe(self) -> Facts:
        """Versions, the device, and a hash of the libraries."""
        return {**super().describe(), "engine": "mlx_server", "cannot": CANNOT}

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Start a server for a model's folder."""
        options = options_of(_NAME, settings, _OPTIONS)
        program = (sys.executable, "-I", "-m", "mlx_lm", "server", "--model", path)
        command = on_loopback(*program, options=options)
        return MlxServerModel(ServerProcess(_NAME, command, "/health"), path, settings)


class MlxServerModel(StartedModel):
    """A model's folder in a server of its own."""

    def __init__(self, server: ServerProcess, path: str, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._tokenizer = load_tokenizer(Path(path))
        super().__init__(server)

    def api(self, endpoint: Endpoint) -> Api:
        """Completions of the server's only model."""
        return Api(endpoint, "/v1/completions", {"stream_options": {"include_usage": True}})

    def state(self) -> Facts:
        """Requests that it decodes at once, if that was set."""
        slots = self._settings.get("parallel")
        return {} if slots is None else {"slots": slots}

    def count(self, _endpoint: Endpoint, prompt: str) -> int:
        """The tokens of a prompt, by the tokenizer that the server loads too."""
        return len(self._tokenizer.encode(prompt))

    def learn(self, _server: ServerProcess) -> tuple[Facts, Facts]:
        """The resolved facts of load and context: the server reports none."""
        settings = self._settings
        parts = {
            "decode concurrency": settings.get("parallel", "by default"),
            "slots": None,
            "context": None,
            "memory": None,
        }
        bits = settings.get("kv_bits")
        facts = served_facts(served_text(_NAME, parts), description="MLX")
        return facts, unseen_context(None, "f16" if bits is None else f"{bits}bit")
