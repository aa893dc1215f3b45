"""llama-cpp-python's own server, of the interpreter's environment.

Its own defaults apply with one exception: a second request would end the first one, and waits
instead.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from .llama_cpp_engine import GGML_TYPES, LlamaCppEngine
from .printed.engine_log import (
    buffers_mib,
    context_facts,
    context_length,
    layer_counts,
    model_counts,
)
from .served_api import Api
from .served_model import CANNOT, UNBOUNDED, served_facts, served_text
from .server_process import ServerProcess, StartedModel, on_loopback, options_of
from .serving.client import stream_request
from .serving.payload import answered_object

if TYPE_CHECKING:
    from .engine import Facts, LoadedModel
    from .serving.record import Endpoint

_NAME: Final = "llama_cpp.server"
_SLOTS: Final = 1
#: By setting: the server's option, which has its name but for the first.
_SAME: Final = ("n_gpu_layers", "flash_attn", "type_k", "type_v", "n_batch", "n_ubatch")
_OPTIONS: Final = {"threads": "--n_threads", **{key: f"--{key}" for key in _SAME}}


class LlamaCppServerEngine(LlamaCppEngine):
    """The engine: the library, whose server runs in a process of its own."""

    def describe(self) -> Facts:
        """Versions, devices and a hash of the libraries."""
        return {**super().describe(), "engine": "llama_cpp_server", "cannot": CANNOT}

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Start a server for a GGUF file."""
        own = {key: _value(key, value) for key, value in settings.items()}
        options = ["--model", path, "--interrupt_requests", "false"]
        options += options_of(_NAME, own, _OPTIONS)
        command = on_loopback(sys.executable, "-I", "-m", "llama_cpp.server", options=options)
        return LlamaCppServerModel(ServerProcess(_NAME, command, "/v1/models"), settings)


def _value(key: str, value: object) -> str:
    if key in {"type_k", "type_v"}:
        return str(GGML_TYPES[str(value)])
    if key == "flash_attn":
        return "true" if value == "on" else "false"
    return str(value)


class LlamaCppServerModel(StartedModel):
    """A GGUF file in a server of its own."""

    def __init__(self, server: ServerProcess, settings: dict[str, Any]) -> None:
        self._settings = settings
        super().__init__(server)

    def api(self, endpoint: Endpoint) -> Api:
        """Completions.

        Its streams have no counts, but show when the requested number is reached.
        """
        return Api(endpoint, "/v1/completions")

    def state(self) -> Facts:
        """It works on one request at a time."""
        return {"slots": _SLOTS}

    def count(self, endpoint: Endpoint, prompt: str) -> int:
        """The tokens of a prompt, by the server's tokenizer."""
        record = stream_request(endpoint, "/extras/tokenize/count", {"input": prompt})
        n_tokens = answered_object(record.body).get("count")
        if not isinstance(n_tokens, int):
            raise self.failure("/extras/tokenize/count gave no count")
        return n_tokens

    def learn(self, server: ServerProcess) -> tuple[Facts, Facts]:
        """The resolved facts of load and context, by the log."""
        log = server.run.log
        info, n_ctx = model_counts(log), context_length(log)
        threads = self._settings.get("threads")
        facts = served_facts(
            served_text(_NAME, {"slots": _SLOTS, "context": n_ctx, "cache": None}),
            description="GGUF",
            n_vocab=info.get("n_vocab", 0),
            n_ctx_train=info.get("n_ctx_train", UNBOUNDED),
            **layer_counts(log, info.get("n_layer", 0)),
            buffers_mib=buffers_mib(log),
            threads=threads or 0,
        )
        context = context_facts(log, self._settings)
        return facts, {**context, "n_ctx": n_ctx, "threads": threads}
