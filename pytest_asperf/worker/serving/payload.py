"""The content of one event of a reply, in the forms of each API. Values may be of any type."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from .event_stream import SHOWN, quoted

#: The place of output in a payload of each API.
_OUTPUT_KEYS: Final = (
    *("reasoning_content", "reasoning", "thinking"),
    *("content", "text", "response", "arguments"),
)
OLLAMA_TIMES: Final = {
    *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
    *("prompt_eval_count", "eval_count", "prompt_eval_cached_count"),
}


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens by the server's own counts; None if it has none."""

    n_prompt: int | None = None
    n_cached: int | None = None
    n_output: int | None = None


def finish_of(payload: dict[str, Any]) -> object:
    """The reason for a reply's end, by its event."""
    if payload.get("done") is True:
        return payload.get("done_reason") or "done"
    if payload.get("stop") is True:
        return {"limit": "length", "eos": "stop"}.get(str(payload.get("stop_type")), "done")
    if payload.get("type") == "chat.end":
        return "done"
    return _first_choice(payload).get("finish_reason")


def counts_of(payload: dict[str, Any]) -> dict[str, int | None]:
    """Counts of tokens, by any of the API's names; `usage` before the server's times."""
    usage, stats = as_dict(payload.get("usage")), as_dict(payload.get("stats"))
    timings = as_dict(payload.get("timings"))
    cached = as_dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    prompt = _count(timings.get("prompt_n"))
    if prompt is not None:  # without the tokens from the cache
        prompt += _count(timings.get("cache_n")) or 0
    return {
        "n_prompt": _first_count(
            usage.get("prompt_tokens"), prompt, payload.get("tokens_evaluated"),
            payload.get("prompt_eval_count"), stats.get("input_tokens"),
        ),
        "n_cached": _first_count(
            timings.get("cache_n"), cached, payload.get("prompt_eval_cached_count"),
        ),
        "n_output": _first_count(
            usage.get("completion_tokens"), timings.get("predicted_n"),
            payload.get("tokens_predicted"), payload.get("eval_count"),
            stats.get("total_output_tokens"),
        ),
    }  # fmt: skip


def _first_choice(payload: dict[str, Any]) -> dict[str, Any]:
    choices = payload.get("choices")
    return as_dict(choices[0]) if isinstance(choices, list) and choices else {}


def output_parts(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of an event in which output can be."""
    choice = _first_choice(payload)
    delta = as_dict(choice.get("delta") or choice.get("message"))
    calls = delta.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    functions = [as_dict(as_dict(call).get("function")) for call in listed]
    typed = payload.get("type")
    if isinstance(typed, str) and not typed.endswith(".delta"):
        return [choice, delta]
    return [payload, as_dict(payload.get("message")), choice, delta, *functions]


def outputs(parts: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The texts of an event: reasoning, content and arguments of tools."""
    for part in parts:
        for key in _OUTPUT_KEYS:
            if isinstance(text := part.get(key), str):
                yield text


def error_of(payload: dict[str, Any]) -> str | None:
    """An error's own words, if the payload is one."""
    error = payload.get("error")
    if not error and payload.get("type") != "error":
        return None
    message = as_dict(error).get("message") if isinstance(error, dict) else error
    return quoted(str(message or payload).encode(errors="replace"))


def error_text(body: bytes, kind: str) -> str:
    """The message of a failed reply, or its beginning."""
    said = error_of(answered_object(body)) if "json" in kind else None
    if said is not None or not body:
        return said or ""
    return quoted(body)


def answered_object(body: bytes) -> dict[str, Any]:
    """A reply that is an object; empty if it is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def as_dict(value: object) -> dict[str, Any]:
    """An object, or an empty one instead of any other value."""
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first_count(*values: object) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of an object."""
    return {
        str(key)[:SHOWN]: value
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
