"""A server's reply with its times, and the time of a workload by them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from .engine import Asked, Facts, RefusalError, Timing
from .serving.facts import request_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .serving.events import Reply
    from .serving.record import StreamRecord


@dataclass(frozen=True, slots=True)
class TimedReply:
    """A reply without faults, and the tokens of its output."""

    record: StreamRecord
    reply: Reply
    n_output: int | None

    def __str__(self) -> str:
        return f"{self.n_output} tokens and {self.reply.finish or 'no reason'}"

    def is_shorter(self, n_output: int) -> bool:
        """Whether it ended before so many tokens, or shows none of them."""
        if self.n_output is None:
            return self.reply.finish != "length" or not self.reply.events
        return self.n_output < n_output or not self.reply.events

    def counted(self, n_output: int) -> TimedReply:
        """With the tokens that were asked for, where the server says that it stopped there."""
        return replace(self, n_output=n_output if self.n_output is None else self.n_output)

    @property
    def start_ns(self) -> int:
        """When it was sent."""
        sent_ns = self.record.sent_ns
        return self.record.intended_ns if sent_ns is None else sent_ns

    @property
    def ttft_ns(self) -> int:
        """From the request to the first output."""
        return self.reply.token_ns[0] - self.start_ns

    @property
    def gaps_ns(self) -> tuple[int, ...]:
        """The times between events with output."""
        return tuple(after - before for before, after in pairwise(self.reply.token_ns))

    @property
    def n_of_first(self) -> int:
        """Tokens of the first event with output; 1 where it does not say."""
        return max(1, self.reply.events[0].n_tokens_so_far or 1)

    @property
    def facts(self) -> Facts:
        """The fields of `analysis.serving_metrics.ServedRequest`."""
        return {**request_facts(self.record, self.reply), "n_output": self.n_output}

    @property
    def drafted(self) -> str | None:
        """What the server drafted for this reply, in words; None if it does not speculate."""
        n, accepted = (self.reply.timings.get(key, 0) for key in ("draft_n", "draft_n_accepted"))
        return f"{accepted:g} of {n:g} drafted tokens accepted" if n else None

    @property
    def said(self) -> Facts:
        """What the server said of itself and of its own times."""
        reply = self.reply
        names = {"build": reply.build or None, "model": reply.model or None}
        return {**names, "timings": reply.timings, **asdict(reply.counts)}


def times_prompt(kind: str) -> bool:
    """Whether a prompt is timed; else only what is generated after it."""
    return kind in {"pp", "ttft", "request"}


def timing(work: Asked, answers: Sequence[TimedReply], lag_ns: int) -> Timing:
    """The time of all users' requests together; see `AnswersRequests`.

    The lag is that of our own stamps.
    """
    elapsed_ns, steps_ns = _TIMED[work.kind](work, answers)
    requests = tuple({**answer.facts, "lag_ns": lag_ns} for answer in answers)
    return Timing(work.n_tokens * len(answers), elapsed_ns, steps_ns, None, requests)


def _prompt(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """Until every user has the first output."""
    began_ns = min(answer.start_ns for answer in answers)
    return max(answer.reply.token_ns[0] for answer in answers) - began_ns, ()


def _first_token(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """The mean time until the first output."""
    elapsed_ns = round(fmean(answer.ttft_ns for answer in answers))
    return elapsed_ns, (elapsed_ns,)


def _whole(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """The mean time of a request, and the mean time until its first output."""
    elapsed_ns = round(fmean(answer.reply.token_ns[-1] - answer.start_ns for answer in answers))
    first_ns, _ = _first_token(_work, answers)
    return elapsed_ns, (first_ns, *_gaps_of_one(answers))


def _generation(work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """From the first output of any user to the last of all, of the tokens that were asked for.

    One more was generated, as the first one ends the prompt; with some servers the first event has
    several.
    """
    first_ns = min(answer.reply.token_ns[0] for answer in answers)
    last_ns = max(answer.reply.token_ns[-1] for answer in answers)
    n_timed = work.n_tokens + 1 - max(answer.n_of_first for answer in answers)
    if n_timed < 1 or last_ns <= first_ns:
        raise RefusalError("server", f"all {work.n_tokens + 1} tokens came at once")
    return (last_ns - first_ns) * work.n_tokens // n_timed, _gaps_of_one(answers)


def _gaps_of_one(answers: Sequence[TimedReply]) -> tuple[int, ...]:
    return answers[0].gaps_ns if len(answers) == 1 else ()


_TIMED = {
    "pp": _prompt,
    "ttft": _first_token,
    "request": _whole,
    "tg": _generation,
    "itl": _generation,
}
