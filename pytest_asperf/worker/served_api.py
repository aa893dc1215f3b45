"""The API of a server, and the form of its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .serving.client import stream_request
from .serving.payload import answered_object, as_dict
from .serving.record import Endpoint, StreamRecord, Timeouts

if TYPE_CHECKING:
    from .engine import Facts

#: The fields of a request for the likeliest tokens. A penalty may count generated tokens and none
#: of the prompt's: llama-cpp-python's server has one of 1.1 by default.
_LIKELIEST: Final[Facts] = {
    "temperature": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repeat_penalty": 1,
    "repetition_penalty": 1,
}
#: The status of a request with a field that the server does not have.
_UNKNOWN_FIELD: Final = {400, 422}
#: The fields of a request for log-probabilities, of llama-cpp-python's server and of mlx-lm. One
#: rejects the types of the other.
_LISTING: Final[tuple[Facts, ...]] = (
    {"logprobs": 20},
    {"logprobs": True, "top_logprobs": 10},
)
#: The smallest log-probability in single precision.
_LEAST: Final = -103.0


@dataclass(frozen=True, slots=True)
class Api:
    """The URL of a model's API, and the form of its requests."""

    endpoint: Endpoint
    path: str  #: of completions, or of a chat's
    #: the fields of every request other than prompt and number of tokens
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    model: str = ""  #: the name that replies must have; empty for any
    timeouts: Timeouts = field(default_factory=Timeouts)

    @property
    def is_chat(self) -> bool:
        """True if a prompt is a user's message, after which an answer begins anew."""
        return self.path.endswith("/chat/completions")

    def _of(self, prompt: str) -> Facts:
        if self.is_chat:
            return {"messages": [{"role": "user", "content": prompt}]}
        return {"prompt": prompt}

    def stream(
        self, prompt: str, n_tokens: int, intended_ns: int | None = None, **more: Any
    ) -> StreamRecord:
        """Request so many tokens after a prompt."""
        body = {**self._of(prompt), "max_tokens": n_tokens, "stream": True, **self.body, **more}
        return stream_request(
            self.endpoint,
            self.path,
            body,
            headers=self.headers,
            timeouts=self.timeouts,
            intended_ns=intended_ns,
        )

    def unpenalized(
        self, prompt: str, n_tokens: int, at_ns: int | None, more: Facts
    ) -> StreamRecord:
        """Request tokens after a prompt, the likeliest ones unless a temperature is given."""
        record = self.stream(prompt, n_tokens, at_ns, **{**_LIKELIEST, **more})
        if record.status in _UNKNOWN_FIELD:
            record = self.stream(prompt, n_tokens, at_ns, **{"temperature": 0, **more})
        return record

    def listed(self, prompt: str) -> dict[str, float]:
        """Log-probabilities of the likeliest tokens after a prompt; none of a chat's."""
        own = {key: value for key, value in self.body.items() if key != "stream_options"}
        body = {**self._of(prompt), "max_tokens": 1, **own, "temperature": 0}
        for how in () if self.is_chat else _LISTING:
            record = stream_request(
                self.endpoint,
                self.path,
                {**body, **how},
                headers=self.headers,
                timeouts=self.timeouts,
            )
            if record.status == 200 and (listed := _listed(answered_object(record.body))):
                return listed
        return {}


def _listed(answer: Facts) -> dict[str, float]:
    """The likeliest tokens of an answer's first position, in either form."""
    shown = as_dict(_first(answer.get("choices")).get("logprobs"))
    listed = _first(shown.get("top_logprobs"))
    entries = _first(shown.get("content")).get("top_logprobs")
    if isinstance(entries, list):
        listed = {str(entry.get("token")): entry.get("logprob") for entry in map(as_dict, entries)}
    return {
        token: float(value)
        for token, value in listed.items()
        if isinstance(value, float | int) and _LEAST <= value <= 0
    }


def _first(values: object) -> Facts:
    """The first object of a list, or an empty one."""
    return as_dict(values[0]) if isinstance(values, list) and values else {}
