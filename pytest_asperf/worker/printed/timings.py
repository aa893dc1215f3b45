"""The timings of requests and texts that llama.cpp's binaries, its server and ollama print."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from . import COUNT, NUMBER, Unread

_TIMING: Final = re.compile(
    rf"(?P<prompt>prompt )?eval time += *(?P<ms>{NUMBER}) ms / *(?P<n>{COUNT}) (?:tokens|runs) "
    rf"*\( *[\d.naif-]+ ms per (?:token|run)"
    rf"(?:, *(?P<rate>{NUMBER}|-?nan|inf) tokens per second)?\)"
)
_OF_SERVER: Final = re.compile(r"(?<!llama_)print_timings?\b")
#: A program prints it at its end; servers of 2023 did so after each request.
_OF_PROGRAM: Final = re.compile(
    r"(?:llama_perf\w*|common_perf|gpt_perf|llama)_print(?:_timings)?\b"
)
#: llama-cli since the end of 2025.
_OF_CHAT: Final = re.compile(rf"\[ Prompt: ({NUMBER}) t/s \| Generation: ({NUMBER}) t/s \]")
_CHAT: Final = "[ Prompt: "
_TIMED: Final = re.compile(r"eval time *= *\d")
_DRAFTED: Final = re.compile(
    rf"draft acceptance(?: rate)? = *[\d.naif-]+ \( *({COUNT}) accepted / *({COUNT}) generated\)"
)
_ANSWER_FIELDS: Final = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
_OLLAMA_FIELDS: Final = (
    "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration",
)  # fmt: skip
#: The server's log of 2024, with two names of one count.
_LOG_FIELDS: Final = ("n_prompt", "t_prompt_processing", "n_decoded", "t_token_generation")
_PROMPT_COUNTS: Final = ("n_prompt_tokens_processed", "num_prompt_tokens_processed")
#: The programs that time requests, or a text.
SERVER: Final = "llama-server"
PROGRAM: Final = "llama-cli"
OLLAMA: Final = "ollama"
#: Number of requests that are kept; a server's log may have millions.
MAX_REQUESTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class PrintedTiming:
    """Tokens, or single-token decodes ("runs"), and their time and tok/s as printed."""

    n_tokens: int
    ms: float
    printed_rate: float | None = None

    @property
    def rate(self) -> float | None:
        """Tokens per second, from count and time; None if there is no time or no token."""
        return self.n_tokens * 1e3 / self.ms if self.n_tokens and self.ms else None


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a server, or one text of a program."""

    #: tokens of the prompt that were processed, without cached ones; None if unsaid
    prompt: PrintedTiming | None
    #: tokens generated and the time from the first one's logits to the last one
    generated: PrintedTiming
    n_drafted: int = 0
    n_accepted: int = 0
    #: True if decodes are counted instead of tokens, one fewer for a text
    counts_steps: bool = False
    is_cut: bool = False  #: True if the server reports that it cut the prompt

    @property
    def rate(self) -> float | None:
        """TG in tok/s: n - 1 steps, because the prompt's own logits give the first token."""
        steps = self.generated.n_tokens - (not self.counts_steps)
        return steps * 1e3 / self.generated.ms if steps > 0 and self.generated.ms else None

    @property
    def counts_first_token(self) -> bool:
        """True if the rate that was printed divides all n tokens by the time of n - 1 steps."""
        printed, whole = self.generated.printed_rate, self.generated.rate
        if printed is None or whole is None or self.rate is None or self.counts_steps:
            return False
        return abs(printed - whole) < abs(printed - self.rate)


@dataclass(slots=True)
class RequestReader:
    """Gathers requests by the program that served them, in the forms of its releases since 2023.

    They are in the order they ended; `left_out` more are not kept.
    """

    of: dict[str, list[Request]] = field(default_factory=dict)
    _prompt: PrintedTiming | None = None
    _program: str = ""
    left_out: int = 0
    #: lines with a timing that is cut off, in another form, or of no known program
    unread: Unread = field(default_factory=Unread)

    def feed(self, line: str) -> None:
        """Parse one line."""
        if _OF_SERVER.search(line):
            self._program = SERVER
        elif _OF_PROGRAM.search(line):
            self._program = PROGRAM
        elif chat := _OF_CHAT.search(line):
            if request := request_of_rates(float(chat[1]), float(chat[2])):
                self.add(PROGRAM, request)
            else:
                self.unread.add(line)
            return
        elif _CHAT in line:
            self.unread.add(line)
        if "eval time" in line:
            self._feed_timing(line)
        elif (drafted := _DRAFTED.search(line)) and self.of.get(SERVER) and not self.left_out:
            n_accepted, n_drafted = map(int, drafted.groups())
            last = self.of[SERVER][-1]
            self.of[SERVER][-1] = replace(last, n_drafted=n_drafted, n_accepted=n_accepted)

    def add(self, program: str, request: Request) -> None:
        """Keep one more request."""
        requests = self.of.setdefault(program, [])
        if len(requests) < MAX_REQUESTS:
            requests.append(request)
        else:
            self.left_out += 1

    def _feed_timing(self, line: str) -> None:
        match = _TIMING.search(line)
        if match is None or not self._program:
            if _TIMED.search(line):
                self.unread.add(line)
            return
        timing = _timing(match)
        if match["prompt"]:
            self._prompt = timing
        else:
            counts_steps = self._program == PROGRAM
            self.add(self._program, Request(self._prompt, timing, counts_steps=counts_steps))
            self._prompt = None


def request_of_rates(prompt: float, generated: float) -> Request | None:
    """A request of which only the rates are known: one step in its time; None without a text's."""
    of_prompt, of_text = (
        PrintedTiming(1, 1e3 / rate, rate) if rate else None for rate in (prompt, generated)
    )
    return Request(of_prompt, of_text, counts_steps=True) if of_text else None


def request_of(answer: object) -> tuple[str, Request] | None:
    """The program and the request in its JSON; None for any other JSON.

    llama-server's `/completion`, its endpoints in OpenAI's form, the timings of either alone, a
    line of its log of 2024, and ollama's API. Only the last part of a streamed answer counts:
    earlier parts have timings of its beginning.
    """
    if not isinstance(answer, dict):
        return None
    timings = answer.get("timings", answer)
    if not isinstance(timings, dict):
        return None
    count = next((timings[key] for key in _PROMPT_COUNTS if key in timings), None)
    if timings.keys() >= {*_ANSWER_FIELDS}:
        program, fields, per_ms = SERVER, _ANSWER_FIELDS, 1.0
        is_last = timings is answer or _ends(answer)
    elif timings.keys() >= {"eval_count", "eval_duration"}:
        program, fields, per_ms = OLLAMA, _OLLAMA_FIELDS, 1e6
        is_last = answer.get("done") is not False
    elif timings.keys() >= {*_LOG_FIELDS[1:]} and count is not None:
        program, fields, per_ms, is_last = SERVER, _LOG_FIELDS, 1.0, True
        timings = {**timings, _LOG_FIELDS[0]: count}
    else:
        return None
    try:
        n_prompt, prompt_ms, n, ms = (timings.get(key, 0) for key in fields)
        request = Request(
            PrintedTiming(int(n_prompt), float(prompt_ms) / per_ms),
            PrintedTiming(int(n), float(ms) / per_ms),
            n_drafted=int(timings.get("draft_n", 0)),
            n_accepted=int(timings.get("draft_n_accepted", 0)),
            is_cut=answer.get("truncated") is True,
        )
    except (TypeError, ValueError, OverflowError):
        return None
    return (program, request) if is_last and _is_sound(request) else None


def _ends(answer: Mapping[str, object]) -> bool:
    choices = answer.get("choices")
    return answer.get("stop") is True or (
        isinstance(choices, list)
        and any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)
    )


def _is_sound(request: Request) -> bool:
    timings = [timing for timing in (request.prompt, request.generated) if timing]
    return 0 <= request.n_accepted <= request.n_drafted and all(
        timing.n_tokens >= 0 and 0 <= timing.ms < math.inf for timing in timings
    )


def read_timing(line: str) -> tuple[bool, PrintedTiming] | None:
    """True if a line times a prompt, and the timing; None for any other line."""
    match = _TIMING.search(line)
    return (bool(match["prompt"]), _timing(match)) if match else None


def _timing(match: re.Match[str]) -> PrintedTiming:
    rate = match["rate"] or ""
    is_number = rate[:1].isdecimal()
    return PrintedTiming(int(match["n"]), float(match["ms"]), float(rate) if is_number else None)
