"""Any server that speaks OpenAI's API, which we neither start nor stop.

Its further facts are used if it has them: llama-server's `/props`, the tokenizer of llama-server,
vLLM or llama-cpp-python, Ollama's version. Missing facts are named as unknown.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from .engine import Facts, RefusalError
from .served_api import Api
from .served_model import (
    CANNOT,
    CANNOT_STEP,
    UNBOUNDED,
    ServedModel,
    served_facts,
    served_text,
    unseen_context,
)
from .serving.client import get_request, stream_request
from .serving.payload import answered_object, as_dict
from .serving.record import Endpoint, StreamRecord, Timeouts

if TYPE_CHECKING:
    from .token_probabilities import TokenProbabilities

_COMPLETIONS: Final = "/completions"
_CHAT: Final = "/chat/completions"
#: Paths that count a text's tokens, of llama-server and vLLM, and of llama-cpp-python's server.
_TOKENIZERS: Final = ("/tokenize", "/extras/tokenize/count")
_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}
_ASKING: Final = Timeouts(connect_s=5.0, headers_s=30.0, idle_s=30.0, total_s=30.0)
_MODEL_NAMES_SHOWN: Final = 8


class OpenAiEngine:
    """The engine: an address, and the name of the variable with its key."""

    def __init__(self, url: str = "", key_variable: str = "") -> None:
        if not url:
            raise RefusalError("url", "no server is named")
        try:
            endpoint = Endpoint.parse(url)
        except ValueError as err:
            raise RefusalError("url", str(err)) from err
        self._path = ""
        for path in (_CHAT, _COMPLETIONS):  # an address may name its API
            if endpoint.base.endswith(path):
                self._path = path
                endpoint = _at(endpoint, endpoint.base.removesuffix(path))
                break
        self.root = _at(endpoint, endpoint.base.removesuffix("/v1"))
        self.endpoint = _at(endpoint, endpoint.base or "/v1")
        self.headers = _authorization(endpoint, key_variable)

    def describe(self) -> Facts:
        """The server's address, and the version that it names."""
        self._listed()
        return {
            "engine": "openai",
            "library": f"server {self.endpoint}",
            "version": self._version(),
            "library_path": str(self.endpoint),
            "library_sha256": None,
            "devices": [],
            "default_threads": None,
            "cannot": CANNOT_STEP if self.is_llama_server else CANNOT,
        }

    def _version(self) -> str:
        """Its version by llama-server's, vLLM's or Ollama's endpoint."""
        version = self._own_version or self.ask(self.root, "/api/version").get("version")
        return version[:80] if isinstance(version, str) else "unknown"

    @cached_property
    def _own_version(self) -> str | None:
        """The version of llama-server or vLLM; None of another server."""
        for path, key in (("/props", "build_info"), ("/version", "version")):
            version = self.ask(self.root, path).get(key)
            if isinstance(version, str):
                return version
        return None

    @property
    def is_llama_server(self) -> bool:
        """True if it has llama-server's facts about itself."""
        return isinstance(self.ask(self.root, "/props").get("build_info"), str)

    @property
    def ignores_end(self) -> bool:
        """True if it can go on after the end of the text; other servers reject the word."""
        return self._own_version is not None

    def ask(self, endpoint: Endpoint, path: str) -> Facts:
        """An object that a path answers with; empty if it does not."""
        return answered_object(
            get_request(endpoint, path, headers=self.headers, timeouts=_ASKING).body
        )

    def load(self, path: str, settings: dict[str, Any]) -> OpenAiModel:
        """Find a model by its name; `served` is the one that the server names first."""
        if settings:
            raise RefusalError(
                "settings",
                f"{', '.join(sorted(settings))}: a server that we do not start has its own",
            )
        record = self._listed()
        listed = answered_object(record.body).get("data")
        names = [str(m.get("id")) for m in listed if isinstance(m, dict)] if listed else []
        if path == "served":
            if not names:
                raise RefusalError("name", f"{self.endpoint} lists no model (HTTP {record.status})")
            path = names[0]
        elif names and path not in names:
            known = ", ".join(names[:_MODEL_NAMES_SHOWN])
            raise RefusalError("name", f"{self.endpoint} has no model {path}; it has {known}")
        return OpenAiModel(self, path, self._path or self._found_path(path))

    def _listed(self) -> StreamRecord:
        """The server's answer to a request for its models; an error if it does not answer."""
        record = get_request(self.endpoint, "/models", headers=self.headers, timeouts=_ASKING)
        if record.fault is not None:
            raise RefusalError("server", record.fault.text)
        if record.status in {401, 403}:
            key = "the key was rejected" if self.headers else "it needs a key, and there is none"
            raise RefusalError("server", f"{self.endpoint}: {key} (HTTP {record.status})")
        return record

    def _found_path(self, model: str) -> str:
        """Completions if the server has them, otherwise a chat's."""
        body = {"model": model, "prompt": "1", "max_tokens": 1}
        record = stream_request(self.endpoint, _COMPLETIONS, body, headers=self.headers)
        return _CHAT if record.status in {404, 405} else _COMPLETIONS

    def quantize(self, *_: object) -> None:
        """Raise: the server has the files."""
        raise RefusalError("unsupported", "a server at a URL makes no quantizations")


class OpenAiModel(ServedModel):
    """A model by the name that the server has for it."""

    def __init__(self, engine: OpenAiEngine, name: str, path: str) -> None:
        self._engine = engine
        self._name = name
        # A tokenizer does not count the tokens that a chat's template adds.
        paths = () if path == _CHAT else _TOKENIZERS
        self._tokenizer = next((p for p in paths if self._tokenized(p, "a b c") is not None), None)
        body: Facts = {"model": name, "stream_options": {"include_usage": True}}
        props = engine.ask(engine.root, "/props")
        if engine.ignores_end:
            body["ignore_eos"] = True
        n_ctx = as_dict(props.get("default_generation_settings")).get("n_ctx")
        api = Api(engine.endpoint, path, body, engine.headers, name)
        super().__init__(
            api,
            self._count,
            self._facts(props, n_ctx),
            unseen_context(n_ctx, "?"),
            counts_cheaply=self._tokenizer is not None,
        )

    def _facts(self, props: Facts, n_ctx: int | None) -> Facts:
        parts = {
            "build": props.get("build_info"),
            "slots": props.get("total_slots"),
            "context of a slot": n_ctx,
            "model file": props.get("model_path"),
            "cache": None,
            "device": None,
            "threads": None,
        }
        return served_facts(
            served_text(str(self._engine.endpoint), parts),
            description=self._name,
            n_ctx_train=n_ctx or UNBOUNDED,
        )

    @cached_property
    def is_llama_server(self) -> bool:
        """True if it has what llama-server says of itself."""
        return self._engine.is_llama_server

    @cached_property
    def probabilities(self) -> TokenProbabilities:
        """The log-probabilities that it shows; an error if it is no llama-server."""
        engine = self._engine
        if not self.is_llama_server:
            raise RefusalError("unsupported", CANNOT["logits"])
        from .token_probabilities import TokenProbabilities  # noqa: PLC0415  # it brings numpy

        listed = engine.ask(engine.endpoint, "/models").get("data")
        served = next((m for m in map(as_dict, listed or ()) if m.get("id") == self._name), {})
        n_vocab = as_dict(served.get("meta")).get("n_vocab")
        return TokenProbabilities(engine.root, n_vocab, engine.headers)

    def state(self) -> Facts:
        """Build, slots, model file and the number of the last task, of llama-server."""
        props = self._engine.ask(self._engine.root, "/props")
        keys = {"build": "build_info", "slots": "total_slots", "model": "model_path"}
        known = {key: props[name] for key, name in keys.items() if name in props}
        return {**known, **self._tasks()} if known else {}

    def _tasks(self) -> Facts:
        """The number of the last task that llama-server began, counted from its start."""
        engine = self._engine
        try:
            slots = json.loads(get_request(engine.root, "/slots", headers=engine.headers).body)
            numbers = [int(slot.get("id_task") or 0) for slot in slots]  # none of a fresh slot
        except (ValueError, TypeError, AttributeError):
            return {}
        return {"tasks_total": max(numbers, default=0)}

    def _tokenized(self, path: str, prompt: str) -> int | None:
        """Tokens by a tokenizer's path; None if there is none."""
        named = dict.fromkeys(("content", "prompt", "input"), prompt)
        record = stream_request(
            self._engine.root,
            path,
            {**named, "add_special": True, "model": self._name},
            headers=self._engine.headers,
            timeouts=_ASKING,
        )
        answer = answered_object(record.body) if record.status == 200 else {}
        tokens, count = answer.get("tokens"), answer.get("count")
        n_tokens = len(tokens) if isinstance(tokens, list) else count
        return n_tokens if isinstance(n_tokens, int) else None

    def _count(self, prompt: str) -> int:
        """The tokens of a prompt, by a tokenizer or by a request's billed count."""
        counted = self._tokenized(self._tokenizer, prompt) if self._tokenizer else None
        return self.billed(prompt) if counted is None else counted


def _at(endpoint: Endpoint, base: str) -> Endpoint:
    return Endpoint(endpoint.scheme, endpoint.host, endpoint.port, base.rstrip("/"))


def _authorization(endpoint: Endpoint, variable: str) -> dict[str, str]:
    """The header with the key of a variable; none if there is no key."""
    key = os.environ.get(variable, "")
    if not key:
        return {}
    if endpoint.scheme != "https" and endpoint.host not in _LOOPBACK:
        raise RefusalError(
            "url", f"{variable} has a key, and {endpoint} would send it readable: use https"
        )
    return {"Authorization": f"Bearer {key}"}
