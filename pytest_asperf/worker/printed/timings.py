"""The timings that llama.cpp's programs print when they end, and its server after a request."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Final

from .numbers import COUNT, NUMBER

_TIMING: Final = re.compile(
    rf"(?P<prompt>prompt )?eval time += *(?P<ms>{NUMBER}) ms / *(?P<n>{COUNT}) (?:tokens|runs) "
    rf"*\( *[\d.naif-]+ ms per token, +(?P<rate>{NUMBER}|-?nan|inf) tokens per second\)"
)
_OF_SERVER: Final = re.compile(r"print_timings?\b")
_DRAFTED: Final = re.compile(
    rf"draft acceptance(?: rate)? = *[\d.naif-]+ \( *({COUNT}) accepted / *({COUNT}) generated\)"
)
_ANSWER_FIELDS: Final = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
_JSON_FIELDS: Final = ("t_prompt_processing", "t_token_generation", "n_decoded")
#: The timings in a server's answer.
_ANSWER: Final = '"predicted_ms"'
_PROMPT_COUNTS: Final = ("n_prompt_tokens_processed", "num_prompt_tokens_processed")
#: Requests that are kept; a server's log may hold millions.
MAX_REQUESTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class PrintedTiming:
    """Tokens, or single-token decodes ("runs"), and their time and tok/s as printed."""

    n_tokens: int
    ms: float
    printed_rate: float | None = None

    @property
    def rate(self) -> float | None:
        """Tokens per second, from count and time; None where there is no time or no token."""
        return self.n_tokens * 1e3 / self.ms if self.n_tokens and self.ms else None


@dataclass(frozen=True, slots=True)
class Request:
    """One request of llama-server.

    Attributes:
        prompt: tokens of the prompt that were processed, without cached ones; None where unsaid.
        generated: tokens generated and the time from the first one's logits to the last one.
    """

    prompt: PrintedTiming | None
    generated: PrintedTiming
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def rate(self) -> float | None:
        """TG in tok/s: n - 1 steps, because the prompt's own logits give the first token."""
        steps = self.generated.n_tokens - 1
        return steps * 1e3 / self.generated.ms if steps > 0 and self.generated.ms else None

    @property
    def counts_first_token(self) -> bool:
        """Whether the rate that was printed divides all n tokens by the time of n - 1 steps."""
        printed, whole = self.generated.printed_rate, self.generated.rate
        if printed is None or whole is None or self.rate is None:
            return False
        return abs(printed - whole) < abs(printed - self.rate)


@dataclass(slots=True)
class ServerReader:
    """Gathers the requests of llama-server, in the forms of its releases since 2023.

    They are in the order they ended; `left_out` more are not kept.
    """

    requests: list[Request] = field(default_factory=list)
    _prompt: PrintedTiming | None = None
    _of_server: bool = False
    left_out: int = 0

    def feed(self, line: str) -> None:
        """Take one line."""
        if _ANSWER in line and (request := _request_in(line)):
            self._add(request)
        elif _OF_SERVER.search(line):
            self._of_server = True
            if '"t_token_generation"' in line:
                self._feed_json(line)
                return
        if "perf_context_print" in line or "perf_print" in line or "llama_print_timings" in line:
            self._of_server = False
        elif not self._of_server:
            return
        elif match := _TIMING.search(line):
            timing = _timing(match)
            if match["prompt"]:
                self._prompt = timing
            else:
                self._add(Request(self._prompt, timing))
                self._prompt = None
        elif (drafted := _DRAFTED.search(line)) and self.requests and not self.left_out:
            last = self.requests[-1]
            n_accepted, n_drafted = map(int, drafted.groups())
            self.requests[-1] = Request(last.prompt, last.generated, n_drafted, n_accepted)

    def _feed_json(self, line: str) -> None:
        try:
            entry = json.loads(line)
            prompt_ms, ms, n = (entry[key] for key in _JSON_FIELDS)
            n_prompt = next(entry[key] for key in _PROMPT_COUNTS if key in entry)
            request = Request(
                PrintedTiming(int(n_prompt), float(prompt_ms)), PrintedTiming(int(n), float(ms))
            )
        except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
            return
        self._add(request)

    def _add(self, request: Request) -> None:
        if len(self.requests) < MAX_REQUESTS:
            self.requests.append(request)
        else:
            self.left_out += 1


def request_of(answer: object) -> Request | None:
    """The request in JSON of `/completion` or of an endpoint in OpenAI's form, else None.

    Of a streamed answer it is the last part, because timings of the others are of its beginning.
    """
    if not isinstance(answer, dict) or not isinstance(timings := answer.get("timings"), dict):
        return None
    choices = answer.get("choices")
    is_last = answer.get("stop") is True or (
        isinstance(choices, list)
        and any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)
    )
    try:
        n_prompt, prompt_ms, n, ms = (timings[key] for key in _ANSWER_FIELDS)
        drafted = (int(timings.get(key, 0)) for key in ("draft_n", "draft_n_accepted"))
        request = Request(
            PrintedTiming(int(n_prompt), float(prompt_ms)), PrintedTiming(int(n), float(ms))
        )
        n_drafted, n_accepted = drafted
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not is_last or not _is_sound(request) or not 0 <= n_accepted <= n_drafted:
        return None
    return replace(request, n_drafted=n_drafted, n_accepted=n_accepted)


def _request_in(line: str) -> Request | None:
    """The request of an answer that stands in a line, as in a stream."""
    try:
        return request_of(json.loads(line.removeprefix("data: ")))
    except (ValueError, RecursionError):
        return None


def _is_sound(request: Request) -> bool:
    timings = [timing for timing in (request.prompt, request.generated) if timing]
    return all(timing.n_tokens >= 0 and 0 <= timing.ms < math.inf for timing in timings)


def read_timing(line: str) -> tuple[bool, PrintedTiming] | None:
    """Whether a line times a prompt, and the timing; None for any other line."""
    match = _TIMING.search(line)
    return (bool(match["prompt"]), _timing(match)) if match else None


def _timing(match: re.Match[str]) -> PrintedTiming:
    rate = match["rate"]
    is_number = rate[0].isdecimal()
    return PrintedTiming(int(match["n"]), float(match["ms"]), float(rate) if is_number else None)
