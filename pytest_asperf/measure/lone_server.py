"""Examines the timed answers of a server without another one to compare with.

A request is sent again, and so are requests whose prompts have its words in another order: the
answers must depend on the prompt, and on little else, and their times on nothing that was answered
before. The text of an answer has as many tokens as the server counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.guards.timed_work import DELAY_SHARE
from pytest_asperf.analysis.serving_metrics import ServedRequest, itl_ns, ttft_ns
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import RawRun, Worker

#: Requests that are compared, until one agrees: see `served_answers`.
_TRIES: Final = 6
#: Share of a text with which two answers agree.
AGREES: Final = 0.5
#: Tokens of an answer that distinguishes two prompts, and of one that shows the time of a prompt.
_LONG: Final = 32
_SHORT: Final = 4
#: Short answers that are requested at a time, of which the fastest counts.
_SHORT_ONES: Final = 3
#: Words at the end of a prompt that keep their place: a server may remember answers by them.
_LAST_WORDS: Final = 8


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """A server's answer to a timed request; without a seed its likeliest text is meant."""

    prompt: str
    seed: int | None
    n_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class SentAgain:
    """An answer, and its times."""

    text: str
    n_text: int | None  #: tokens of the text, as the server counts a prompt; None if unknown
    first_ns: int  #: time until the first output
    gap_ns: float  #: mean time between chunks with output


@dataclass(frozen=True, slots=True)
class ExaminedServer:
    """Timed answers of a server, examined by further requests."""

    n_requests: int
    findings: tuple[GuardFinding, ...]  #: the signs that answers were not computed

    def __str__(self) -> str:
        found = "; ".join(finding.found for finding in self.findings) or "answers are computed"
        return f"{found}, by {self.n_requests} further requests"


@dataclass(slots=True)
class LoneServer:
    """A server after a timed run, to be examined."""

    worker: Worker
    name: str  #: the model's name in the process
    workload: Workload
    time: Callable[[], RawRun]  #: makes another timed run
    coin: random.Random
    n_requests: int = field(default=0, init=False)

    def examine(self, run: RawRun) -> ExaminedServer | None:
        """Examine the last run; None if the server shows no answers."""
        answer = timed_answer(self.worker, self.name)
        if answer is None or not run.requests:
            return None
        findings = tuple(self._findings(run.requests[0], answer))
        return ExaminedServer(self.n_requests, findings)

    def _findings(self, request: ServedRequest, answer: TimedAnswer) -> Iterator[GuardFinding]:
        checks = (self._of_repetition, self._of_dependence, self._of_times, self._of_delay)
        for check in checks:
            if (finding := check(request, answer)) is not None:
                yield finding
                return

    def _of_repetition(self, _: ServedRequest, answer: TimedAnswer) -> GuardFinding | None:
        """A request that is sent again has the same answer, with its seed or without sampling."""
        most = 0.0
        for _try in range(_TRIES):
            long = self._sent(_long(answer))
            if uncounted := guards.uncounted_text(long.n_text, _long(answer).n_tokens):
                return uncounted
            most = max(most, share_of(answer.text, long.text[: len(answer.text)]))
            if most < AGREES:
                most = max(most, share_of(*(self._likeliest(answer) for _ in range(2))))
            if most >= AGREES:
                return None
            _, answer = self._next(answer)
        return guards.random_answers(_TRIES, most)

    def _of_dependence(self, _: ServedRequest, answer: TimedAnswer) -> GuardFinding | None:
        """Another prompt has another answer, and so has another seed where a prompt is sent twice.

        A server without sampling may answer two prompts alike, until it is requested to sample.
        """
        long, other = (self._sent(_long(one)).text for one in (answer, self._reordered(answer)))
        if long != other and not self.workload.warm:
            return None
        seeds = (self.coin.randrange(2**31) for _ in range(2))
        sampled = [self._sent(replace(_long(answer), seed=seed), 1.0).text for seed in seeds]
        is_one = all(text == long for text in sampled)
        if is_one or (long == other and self._likeliest(answer) != long):
            return guards.one_answer(2 + len(sampled))
        return None

    def _of_times(self, request: ServedRequest, answer: TimedAnswer) -> GuardFinding | None:
        """A prompt in another order needs as much time.

        The machine may be busy in any comparison, so one without a finding is enough.
        """
        if self.workload.warm and not self.workload.generates:
            return None
        finding = None
        for _ in range(_TRIES):
            new = self._new(answer)
            if self.workload.generates:
                finding = guards.repeated_result(fmean(itl_ns(request) or (0.0,)), new.gap_ns)
            else:
                finding = guards.repeated_result(ttft_ns(request), new.first_ns)
            if finding is None:
                break
            request, answer = self._next(answer)
        return finding

    def _of_delay(self, request: ServedRequest, answer: TimedAnswer) -> GuardFinding | None:
        """The first token of a long answer does not come later than that of a short one.

        A busy machine delays either, so the fastest of each count, until both are alike.
        """
        if answer.n_tokens <= _SHORT or self.workload.warm:
            return None
        fastest, short_ns, finding = request, math.inf, None
        for _ in range(_TRIES):
            fastest = min(fastest, request, key=ttft_ns)
            short = replace(answer, n_tokens=_SHORT)
            short_ns = min(short_ns, *(self._new(short).first_ns for _ in range(_SHORT_ONES)))
            span_ns = fastest.event_ns[-1] - fastest.event_ns[0]
            finding = guards.delayed_tokens(ttft_ns(fastest), short_ns, span_ns)
            if ttft_ns(fastest) <= DELAY_SHARE * short_ns:
                break
            request, answer = self._next(answer)
        return finding

    def _new(self, answer: TimedAnswer) -> SentAgain:
        return self._sent(self._reordered(answer))

    def _next(self, answer: TimedAnswer) -> tuple[ServedRequest, TimedAnswer]:
        """Another timed request, and its answer."""
        self.n_requests += 1
        run = self.time()
        return run.requests[0], timed_answer(self.worker, self.name) or answer

    def _likeliest(self, answer: TimedAnswer) -> str:
        return self._sent(replace(_long(answer), seed=None)).text

    def _reordered(self, answer: TimedAnswer) -> TimedAnswer:
        """A request whose prompt has the words in another order, but for the last ones."""
        words = answer.prompt.split(" ")
        end = max(len(words) - _LAST_WORDS, len(words) // 2)
        prompt = " ".join((*self.coin.sample(words[:end], end), *words[end:]))
        return replace(answer, prompt=prompt)

    def _sent(self, request: TimedAnswer, temperature: float = 0) -> SentAgain:
        """The answer to a request."""
        self.n_requests += 1
        return self.worker.asked(
            "answer_again",
            _parsed,
            model=self.name,
            prompt=request.prompt,
            n_tokens=request.n_tokens,
            seed=request.seed,
            temperature=temperature,
        )


def _long(answer: TimedAnswer) -> TimedAnswer:
    """The request for an answer that is long enough to distinguish prompts."""
    return replace(answer, n_tokens=max(answer.n_tokens, _LONG))


def _parsed(reply: Mapping[str, object]) -> SentAgain:
    n_text, first_ns, gap_ns = (reply[name] for name in ("n_text", "first_ns", "gap_ns"))
    known = None if n_text is None else int(str(n_text))
    return SentAgain(str(reply["text"]), known, int(str(first_ns)), float(str(gap_ns)))


def timed_answer(worker: Worker, name: str) -> TimedAnswer | None:
    """An answer of a model's last timed run; None if it shows none."""
    answers = worker.asked(
        "answered",
        lambda reply: [
            TimedAnswer(str(p), int(s), int(n), str(t)) for p, s, n, t in reply["answers"]
        ],
        model=name,
    )
    return answers[0] if answers else None


def share_of(answer: str, again: str) -> float:
    """The share of the longer text until both differ; 1 for two empty ones."""
    n = max(len(answer), len(again))
    alike = (at for at, (a, b) in enumerate(zip(answer, again, strict=False)) if a != b)
    return next(alike, min(len(answer), len(again))) / n if n else 1.0
