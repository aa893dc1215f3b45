"""llama.cpp's own server, from a folder of its binaries.

It is started with the options that were set, and otherwise with its own defaults: slots, prompt
cache, context and sampling are those of its users. Its log is more verbose than by default, for the
run record; that adds some lines per request and none per token.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from .llama_tools_engine import LlamaToolsEngine
from .printed.engine_log import adds_bos, buffers_mib, context_facts, layer_counts, model_counts
from .served_api import Api
from .served_model import CANNOT_STEP, UNBOUNDED, served_facts, served_text
from .server_process import ServerProcess, StartedModel, on_loopback, options_of
from .serving.client import get_request, stream_request
from .serving.payload import answered_object, as_dict
from .tool_process import OPTIONS

if TYPE_CHECKING:
    from .engine import Facts, LoadedModel
    from .serving.record import Endpoint
    from .token_probabilities import TokenProbabilities

PROGRAM: Final = "llama-server"
#: By setting: the server's option.
_OPTIONS: Final = {
    **{key: names[1] or names[0] for key, names in OPTIONS.items()},
    "parallel": "--parallel",
}
#: Counts of `/v1/models`, by the names that they have here.
_META: Final = {"n_params": "n_params", "size_bytes": "size", "n_vocab": "n_vocab"}
#: From `/props`, for the run record: with the default sampling.
_PROPS: Final = ("build_info", "total_slots", "model_ftype", "default_generation_settings")
_MAX_TEXT: Final = 200
#: Lines after those of a load, of which each version has one.
_LOADED: Final = re.compile(r"model loaded|starting the main loop|all slots are idle")
_THREADS: Final = re.compile(r"system_info: n_threads = (\d{1,5})")
_SLOT_CONTEXT: Final = re.compile(r"n_ctx_(?:slot|seq) *= (\d{1,9})")
_CACHE: Final = re.compile(r"prompt cache is (?:enabled, size limit: )?(.{1,40})")
_UNIFIED: Final = re.compile(r"kv_unified *= '?(true|false)")


class LlamaServerEngine(LlamaToolsEngine):
    """The engine: llama-server, and the binaries in its folder."""

    def describe(self) -> Facts:
        """Version and a hash of the binaries."""
        return {**self.facts_of(PROGRAM), "engine": "llama_server", "cannot": CANNOT_STEP}

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Start a server for a GGUF file."""
        options = ["-m", path, "-lv", "4", *options_of(PROGRAM, settings, _OPTIONS)]
        command = on_loopback(self._tools.path(PROGRAM), options=options)
        return LlamaServerModel(ServerProcess(PROGRAM, command, "/health"), path, settings)


class LlamaServerModel(StartedModel):
    """A GGUF file in a llama-server of its own."""

    def __init__(self, server: ServerProcess, path: str, settings: dict[str, Any]) -> None:
        self._path, self._settings = path, settings
        super().__init__(server)

    def api(self, endpoint: Endpoint) -> Api:
        """Completions; the end of the text is ignored, as the number of tokens is fixed."""
        options = {"include_usage": True}
        return Api(endpoint, "/v1/completions", {"ignore_eos": True, "stream_options": options})

    @property
    def is_llama_server(self) -> bool:
        """True."""
        return True

    def state(self) -> Facts:
        """Its slots. It lives as long as its process."""
        return {"slots": self.facts["props"]["total_slots"]}

    @property
    def probabilities(self) -> TokenProbabilities:
        """The log-probabilities that it shows."""
        self.require_alive()
        return self._probabilities

    @cached_property
    def _probabilities(self) -> TokenProbabilities:
        from .token_probabilities import TokenProbabilities  # noqa: PLC0415  # it brings numpy

        return TokenProbabilities(self._server.endpoint, self.facts["n_vocab"], {})

    def count(self, endpoint: Endpoint, prompt: str) -> int:
        """The tokens of a prompt, by the server's tokenizer."""
        body = {"content": prompt, "add_special": True}
        record = stream_request(endpoint, "/tokenize", body)
        tokens = answered_object(record.body).get("tokens")
        if not isinstance(tokens, list):
            raise self.failure("/tokenize gave no tokens")
        return len(tokens)

    def learn(self, server: ServerProcess) -> tuple[Facts, Facts]:
        """The resolved facts of load and context, by log and `/props`."""
        log = server.log_until(_LOADED)
        props = answered_object(get_request(server.endpoint, "/props").body)
        if props.get("model_path") not in {self._path, None}:
            raise self.failure(f"it serves {str(props['model_path'])[:_MAX_TEXT]}")
        models = answered_object(get_request(server.endpoint, "/v1/models").body).get("data")
        meta = (
            as_dict(as_dict(models[0]).get("meta")) if isinstance(models, list) and models else {}
        )
        threads = _number(log, _THREADS)
        facts = served_facts(
            _served(props, log, _speculation(server)),
            description=str(props.get("model_ftype") or "unknown")[:_MAX_TEXT],
            n_ctx_train=meta.get("n_ctx_train", UNBOUNDED),
            add_bos=adds_bos(log),
            **layer_counts(log, model_counts(log).get("n_layer", 0)),
            buffers_mib=buffers_mib(log),
            threads=threads or 0,
            props={key: props.get(key) for key in _PROPS},
            **{key: meta.get(of, 0) for key, of in _META.items()},
        )
        context = context_facts(log, self._settings)
        n_ctx = _number(log, _SLOT_CONTEXT)
        return facts, {**context, "n_ctx": n_ctx, "threads": threads}


def _speculation(server: ServerProcess) -> str | None:
    """True if its slots draft, in a word; `/props` says `none` for a draft model too."""
    record = get_request(server.endpoint, "/slots")
    try:
        speculates = json.loads(record.body)[0]["speculative"]
    except (ValueError, LookupError, TypeError):
        return None
    return "on" if speculates else "off"


def _served(props: Facts, log: list[str], speculation: str | None) -> str:
    """The server in words, and its unknown facts."""
    settings = as_dict(props.get("default_generation_settings"))
    parts = {
        "build": props.get("build_info"),
        "slots": props.get("total_slots"),
        "context of a slot": settings.get("n_ctx"),
        "unified KV": _word(log, _UNIFIED),
        "prompt cache": _word(log, _CACHE),
        "speculation": speculation,
    }
    return served_text("llama-server", parts)


def _number(log: list[str], pattern: re.Pattern[str]) -> int | None:
    word = _word(log, pattern)
    return int(word) if word else None


def _word(log: list[str], pattern: re.Pattern[str]) -> str | None:
    return next((match[1] for line in log if (match := pattern.search(line))), None)
