"""Examines the timed answers of a server without another one to compare with.

A request is sent again, and so are requests whose prompts have its words in another order: the
answers must depend on the prompt, and on little else, and their times on nothing that was answered
before. The text of an answer has as many tokens as the server counted. A prompt that goes on with
the first part of its answer has the rest as its answer, which computes every word in another way.
Requests of several users have the answers of each alone, if they come at once or while others are
answered.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Final, TypeAlias

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.guards.timed_work import DELAY_SHARE
from pytest_asperf.analysis.serving_metrics import ServedRequest, itl_ns, ttft_ns
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import RawRun, Worker

#: Seeds of requests are below: all servers accept them.
SEEDS: Final = 2**31
#: Requests that are compared, until one agrees: see `served_answers`.
_TRIES: Final = 6
#: Share of a text with which two answers agree.
AGREES: Final = 0.5
#: Tokens of an answer that distinguishes two prompts, and of one that shows the time of a prompt.
_LONG: Final = 32
_SHORT: Final = 4
#: Short answers that are requested at a time, of which the fastest counts.
_SHORT_ONES: Final = 3
#: Users whose requests are sent at once, at most, and the share of their answers that must come
#: again alone: rounding in a batch may choose another word.
_MOST_USERS: Final = 4
_LENGTHS: Final = 4
_SHARE_ALONE: Final = 0.6
#: The temperature of a sampled answer that is the likeliest one. At 0.01 3 of 44 were others.
_COLD: Final = 0.001
#: A usual temperature, and one that leaves few words to chance.
_WARM: Final = 0.8
_COOL: Final = 0.3
#: Tokens of an answer that shows the next word.
_WORD_TOKENS: Final = 8
#: A share of 0.25 of sampled words, and 0.02 of others, is the likeliest: the logarithm of the
#: likelihood ratio of a word that is it, and of another one; and sums that decide. By Wald's bound
#: they err for one of 1,000 that are made up, and one of 10,000 that are sampled.
_LIKELIEST: Final = math.log(0.25 / 0.02)
_OTHER: Final = math.log(0.75 / 0.98)
_SAMPLED: Final = math.log(1e3)
_MADE_UP: Final = -math.log(1e4)
#: A token that is less likely than the likeliest one by so many nats is no near-tie, and a sampled
#: one is excluded by min-p, 0.05 by default. Texts with several of them are wrong: docs/guards.md.
_NO_TIE: Final = 0.3
EXCLUDED: Final = 3.3
UNLIKELY_TOKENS: Final = 3
#: Words of an answer that shows when it began: many servers keep a word until its end.
_FEW_WORDS: Final = 4
#: Words at the end of a prompt that keep their place: a server may remember answers by them.
_LAST_WORDS: Final = 8
#: Words of an answer that is continued, and the most that are left to its shorter beginning.
_LEAST_WORDS: Final = 8
_FIRST_WORDS: Final = 3
#: Words in equal ends of two answers: a model that has finished its text repeats fewer.
_WORDS_OF_AN_END: Final = 4
#: Share of a text in repeated pieces that makes it a loop, and such pieces.
_LOOP_SHARE: Final = 0.25
_LOOP: Final = re.compile(r"(.{1,16}?)\1{3,}", re.DOTALL)
_WORD_END: Final = re.compile(r"(?<=\S)\s")


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
    n_output: int | None  #: tokens by the server's count; None if unknown
    is_chat: bool  #: True if an answer is no continuation of its prompt
    first_ns: int  #: time until the first output
    gap_ns: float  #: mean time between chunks with output


#: A timed request, and its answer.
Timed: TypeAlias = tuple[ServedRequest, TimedAnswer]


@dataclass(frozen=True, slots=True)
class ExaminedServer:
    """Timed answers of a server, examined by further requests."""

    n_requests: int
    findings: tuple[GuardFinding, ...]  #: the signs that answers were not computed
    is_continued: bool = True  #: True if an answer came again from a prompt with its first part

    def __str__(self) -> str:
        n = f"{self.n_requests} further requests"
        if self.findings:
            return f"{'; '.join(finding.found for finding in self.findings)}, after {n}"
        lacks = "" if self.is_continued else "; no answer could be continued"
        return f"answers are computed, by {n}{lacks}"


@dataclass(slots=True)
class LoneServer:
    """A server after a timed run, to be examined."""

    send: Callable[[TimedAnswer, float], SentAgain]  #: sends a request, at a temperature
    #: the likeliest answers to prompts, each of so many tokens, that so many users send in turn
    together: Callable[[Sequence[tuple[str, int]], int], list[str]]
    #: tokens of a text, as the server counts a prompt; None if it counts none
    count: Callable[[str], int | None]
    time: Callable[[], Timed | None]  #: makes another timed request; None if it shows no answer
    workload: Workload
    coin: random.Random
    #: by how many nats each token of answers is less likely than the likeliest; None if unknown
    gaps: Callable[[Sequence[TimedAnswer]], list[list[float]]] | None = None
    n_requests: int = field(default=0, init=False)
    is_continued: bool = field(default=False, init=False)

    def examine(self, timed: Timed) -> ExaminedServer:
        """Examine a timed request."""
        findings = tuple(self._findings(timed))
        return ExaminedServer(self.n_requests, findings, self.is_continued)

    def _findings(self, timed: Timed) -> Iterator[GuardFinding]:
        answers = (self._of_repetition, self._of_dependence, self._of_continuation)
        others = (
            self._of_sampling,
            self._of_chance,
            self._of_users,
            self._of_times,
            self._of_delay,
        )
        for check in (*answers, *others):
            if (finding := check(timed)) is not None:
                yield finding
                return

    def _of_repetition(self, timed: Timed) -> GuardFinding | None:
        """A request that is sent again has the same answer, with its seed or without sampling.

        Its text has as many tokens as were counted, unless it is a loop: text has other tokens
        where a model repeats a character one by one.
        """
        most, uncounted = 0.0, list[GuardFinding | None]()
        for _try in range(_TRIES):
            answer = timed[1]
            long = self._sent(_long(answer))
            n_text = None if _is_loop(long.text) else self.count(long.text)
            uncounted.append(guards.uncounted_text(n_text, long.n_output))
            most = max(most, share_of(answer.text, long.text[: len(answer.text)]))
            if most < AGREES:
                most = max(most, share_of(*(self._likeliest(answer) for _ in range(2))))
            if most >= AGREES and uncounted[-1] is None:
                return None
            timed = self._next(timed)
        if all(uncounted):
            return uncounted[0]
        return guards.random_answers(_TRIES, most) if most < AGREES else None

    def _of_dependence(self, timed: Timed) -> GuardFinding | None:
        """Another prompt has another answer, and so has another seed where a prompt is sent twice.

        A server without sampling may answer two prompts alike, until it is requested to sample. A
        model may go on with one loop or one known text, so further answers are compared, and more
        of loops, and of answers that only end alike.
        """
        finding = None
        for number in range(_TRIES):
            answer = timed[1]
            long, other = (self._sent(_long(one)).text for one in (answer, self._reordered(answer)))
            if not ends_alike(long, other) and not self.workload.warm:
                return None
            seeds = (self.coin.randrange(SEEDS) for _ in range(2))
            sampled = [self._sent(replace(_long(answer), seed=seed), 1.0).text for seed in seeds]
            is_one = all(ends_alike(text, long) for text in sampled)
            if not is_one and not (
                ends_alike(long, other) and not ends_alike(self._likeliest(answer), long)
            ):
                return None
            finding = guards.one_answer(2 + len(sampled))
            if number and long == other and not _is_loop(long):
                break
            timed = self._next(timed)
        return finding

    def _of_continuation(self, timed: Timed) -> GuardFinding | None:
        """The likeliest answer comes again from a prompt that goes on with its first part.

        Rounding may choose another of two words that are nearly as likely, so one agreement after
        a few words and one after half of an answer are enough. Prompts end at different words, as
        an answer of few words is none that can be continued. The longer beginning comes first:
        mlx-lm 0.32.2 ends if a prompt is an earlier one with its answer.
        """
        most, n = [0.0, 0.0], 0
        for _try in range(2 * _TRIES):
            answer = timed[1]
            n_left_out = 1 + self.coin.randrange(1 + len(answer.prompt.split()) // 2)
            prompt = answer.prompt.rsplit(None, n_left_out)[0]
            request = replace(_long(answer), prompt=prompt, seed=None)
            whole = self._sent(request)
            ends = [end.start() for end in _WORD_END.finditer(whole.text)]
            if whole.is_chat:
                return self._of_chat(timed)
            if len(ends) >= _LEAST_WORDS:
                early = ends[self.coin.randrange(_FIRST_WORDS)]
                parts = enumerate((early, self._late(whole.text, ends)))
                for part, at in sorted(parts, key=lambda of: of[1], reverse=True):
                    if most[part] < AGREES:
                        most[part] = max(most[part], self._continued(request, whole.text, at))
                n += 1
            self.is_continued = min(most) >= AGREES
            if self.is_continued or n == _TRIES:
                break
            timed = self._next(timed)
        return guards.other_rest(n, min(most)) if n == _TRIES and not self.is_continued else None

    def _of_chat(self, timed: Timed) -> GuardFinding | None:
        """The likeliest answers of a chat are those by the server's log-probabilities."""
        for _ in range(_TRIES):
            if self.gaps is None:
                return None
            asked = replace(_long(self._reordered(timed[1])), seed=None)
            answer = replace(asked, text=self._sent(asked).text)
            if not is_unlikely(answer, *self.gaps([answer])):
                return None
        return guards.unlikely_answers(_TRIES, _TRIES)

    def _late(self, text: str, ends: list[int]) -> int:
        """A word's end in the middle of a text, or before a loop: any model goes on with one."""
        half = len(ends) // 2
        loop = max(_LOOP.finditer(text), key=lambda found: len(found[0].strip()), default=None)
        start = loop.start() if loop and loop[0].strip() else 0
        is_long = loop is not None and len(loop[0]) >= _LOOP_SHARE * len(text)
        if start >= ends[half - 1] or (is_long and start >= ends[0]):
            return [end for end in ends if end <= start][-1]
        return ends[half + self.coin.randrange(half // 2)]

    def _continued(self, request: TimedAnswer, text: str, at: int) -> float:
        """The share of a text from there on that a prompt with its beginning has as its answer."""
        rest, share = text[at:].lstrip(), 0.0
        n_tokens = min(_LONG, math.ceil(request.n_tokens * len(rest) / len(text)))
        for joint in _joints(text):
            prompt = request.prompt + joint + text[:at]
            again = self._sent(replace(request, prompt=prompt, n_tokens=n_tokens)).text.lstrip()
            n = min(len(rest), len(again))
            share = max(share, share_of(rest[:n], again[:n]) if n else 0.0)
            if share >= AGREES:
                break
        return share

    def _of_sampling(self, timed: Timed) -> GuardFinding | None:
        """At a temperature near 0, sampling gives the likeliest answer.

        A small model has a near-tie in the first half of many answers: 39 % of tries ended so with
        llama-server, and six in a row in one sound examination.
        """
        most = 0.0
        for _try in range(2 * _TRIES):
            answer = self._reordered(replace(_long(timed[1]), seed=self.coin.randrange(SEEDS)))
            most = max(most, share_of(self._likeliest(answer), self._sent(answer, _COLD).text))
            if most >= AGREES:
                return None
            timed = self._next(timed)
        return guards.other_if_sampled(2 * _TRIES, most)

    def _of_chance(self, timed: Timed) -> GuardFinding | None:
        """At a usual temperature, words are sampled.

        A model that knows nothing chooses any, at a low temperature too.
        """

        def likeliest(request: TimedAnswer) -> str:
            return self._sent(request).text

        warm, cool = (self._sampled(timed[1], temperature) for temperature in (_WARM, _COOL))
        if are_sampled(warm, likeliest) is False and are_sampled(cool, likeliest):
            return guards.made_up_samples()
        return None

    def _sampled(self, answer: TimedAnswer, temperature: float) -> Iterator[TimedAnswer]:
        """Answers at a temperature; none of a chat, which does not go on with its words."""
        for _ in range(_TRIES):
            asked = self._reordered(replace(_long(answer), seed=self.coin.randrange(SEEDS)))
            sent = self._sent(asked, temperature)
            if sent.is_chat:
                return
            yield replace(asked, text=sent.text)

    def _of_users(self, timed: Timed) -> GuardFinding | None:
        """The likeliest answers of all users at once come again from each request alone.

        The first user gets a short answer, so that its next prompt comes while others are answered.
        """
        n = min(self.workload.users, _MOST_USERS)
        if n == 1:
            return None
        came_again = list[bool]()
        for _try in range(_TRIES):
            answer = _long(timed[1])
            first, *asked = (self._of_user(answer, number) for number in range(n + 1))
            sent = [(first.prompt, _SHORT), *((one.prompt, one.n_tokens) for one in asked)]
            _, *among = self.together(sent, n)
            self.n_requests += len(sent)
            came_again += map(self._comes_alone, asked, among)
            if all(came_again[-n:]):
                return None
            timed = self._next(timed)
        # One user may have all wrong answers, as the one whose prompt comes later.
        for some in (came_again, *(came_again[user::n] for user in range(n))):
            if (share := fmean(some)) < _SHARE_ALONE:
                return guards.other_among_users(len(some), share)
        return None

    def _of_user(self, answer: TimedAnswer, number: int) -> TimedAnswer:
        """A request whose prompt is as long as the timed one, or by quarters shorter."""
        words = self._reordered(answer).prompt.split(" ")
        n_left_out = len(words) * (number % _LENGTHS) // _LENGTHS
        return replace(answer, prompt=" ".join(words[n_left_out:]), seed=None)

    def _comes_alone(self, asked: TimedAnswer, text: str) -> bool:
        """True if a text is an answer alone: from its prompt, or from where another word came.

        Rounding in a batch chooses another of two words that are nearly as likely, and the rest
        follows from it.
        """
        alone = self._sent(asked)
        n_alike = round(share_of(text, alone.text) * max(len(text), len(alone.text)))
        if n_alike >= AGREES * len(text) or alone.is_chat:
            return n_alike >= AGREES * len(text)
        ends = (end.start() for end in _WORD_END.finditer(text) if end.start() > n_alike)
        at = next(ends, None)
        return at is not None and self._continued(asked, text, at) >= AGREES

    def _of_times(self, timed: Timed) -> GuardFinding | None:
        """A prompt in another order needs as much time.

        The machine may be busy in any comparison, so one without a finding is enough.
        """
        if self.workload.warm and not self.workload.generates:
            return None
        finding = None
        for _ in range(_TRIES):
            request, answer = timed
            new = self._sent(self._reordered(answer))
            if self.workload.generates:
                finding = guards.repeated_result(fmean(itl_ns(request) or (0.0,)), new.gap_ns)
            else:
                finding = guards.repeated_result(ttft_ns(request), new.first_ns)
            if finding is None:
                break
            timed = self._next(timed)
        return finding

    def _of_delay(self, timed: Timed) -> GuardFinding | None:
        """The first token of a long answer does not come later than that of a short one.

        A busy machine delays either, so the fastest of each count, until both are alike.
        """
        if timed[1].n_tokens <= _SHORT or self.workload.warm:
            return None
        fastest, short_ns, finding = None, math.inf, None
        for number in range(_SHORT_ONES * _TRIES):
            request, answer = timed
            if len(answer.text.split()) >= _FEW_WORDS:
                fastest = min(fastest or request, request, key=ttft_ns)
                short = replace(answer, n_tokens=_SHORT)
                if number < _TRIES:  # afterwards there are as many of both
                    alike = (
                        self._sent(self._reordered(short)).first_ns for _ in range(_SHORT_ONES)
                    )
                    short_ns = min(short_ns, *alike)
                span_ns = fastest.event_ns[-1] - fastest.event_ns[0]
                finding = guards.delayed_tokens(ttft_ns(fastest), short_ns, span_ns)
                if ttft_ns(fastest) <= DELAY_SHARE * short_ns:
                    break
            timed = self._next(timed)
        return finding

    def _next(self, timed: Timed) -> Timed:
        """Another timed request, and its answer."""
        self.n_requests += 1
        return self.time() or timed

    def _likeliest(self, answer: TimedAnswer) -> str:
        return self._sent(replace(_long(answer), seed=None)).text

    def _reordered(self, answer: TimedAnswer) -> TimedAnswer:
        """A request whose prompt has the words in another order, but for the last ones."""
        words = answer.prompt.split(" ")
        end = min(len(words), max(len(words) - _LAST_WORDS, len(words) // 2, 2))
        order = words[:end]
        while order[0] == words[0] and len(set(words[:end])) > 1:
            self.coin.shuffle(order)
        return replace(answer, prompt=" ".join((*order, *words[end:])))

    def _sent(self, request: TimedAnswer, temperature: float = 0) -> SentAgain:
        """The answer to a request."""
        self.n_requests += 1
        return self.send(request, temperature)


def _long(answer: TimedAnswer) -> TimedAnswer:
    """The request for an answer that is long enough to distinguish prompts."""
    return replace(answer, n_tokens=max(answer.n_tokens, _LONG))


def are_sampled(
    answers: Iterable[TimedAnswer], likeliest: Callable[[TimedAnswer], str]
) -> bool | None:
    """False if words of sampled answers are the likeliest ones so rarely that they are made up.

    The second function sends a request for the likeliest answer. None means too few words.
    """
    evidence = 0.0
    for answer in answers:
        for is_likeliest in likeliest_words(answer, likeliest):
            evidence += _LIKELIEST if is_likeliest else _OTHER
            if not _MADE_UP < evidence < _SAMPLED:
                return evidence > 0
    return None


def likeliest_words(answer: TimedAnswer, likeliest: Callable[[TimedAnswer], str]) -> Iterator[bool]:
    """True for each word of an answer that comes again without sampling, from the last one on.

    mlx-lm 0.32.2 ends if a prompt is an earlier one with its answer, so no prompt is longer than an
    earlier one. The first word, and the last one, may be parts of words.
    """
    ends = [end.start() for end in _WORD_END.finditer(answer.text.rstrip())]
    for at in reversed(ends[:-1]):
        word = answer.text[at:].split()[0]
        prompts = (answer.prompt + joint + answer.text[:at] for joint in _joints(answer.text))
        asked = (replace(answer, prompt=one, seed=None, n_tokens=_WORD_TOKENS) for one in prompts)
        yield any(_begins_with(word, likeliest(one)) for one in asked)


def _begins_with(word: str, text: str) -> bool:
    """True if a word is the first one of a text, or has all of its tokens."""
    first, *others = text.split() or [""]
    return first == word if others else bool(first) and word.startswith(first)


def _joints(answer: str) -> tuple[str, ...]:
    """Texts between a prompt and its answer: some servers leave out the first word's space."""
    return ("",) if answer[:1].isspace() else ("", " ")


def _is_loop(text: str) -> bool:
    return sum(len(found[0]) for found in _LOOP.finditer(text)) >= _LOOP_SHARE * len(text)


def parsed_answer(reply: Mapping[str, object]) -> SentAgain:
    """An answer as a worker, or its served model, replies it."""
    return SentAgain(
        str(reply["text"]),
        _number(reply["n_output"]),
        bool(reply["is_chat"]),
        int(str(reply["first_ns"])),
        float(str(reply["gap_ns"])),
    )


def _number(replied: object) -> int | None:
    return None if replied is None else int(str(replied))


@dataclass(frozen=True, slots=True)
class TimedServer:
    """A server that a worker sends requests to."""

    worker: Worker
    name: str  #: the model's name in the process
    time: Callable[[], RawRun]  #: makes another timed run

    def examine(
        self, run: RawRun, workload: Workload, coin: random.Random
    ) -> ExaminedServer | None:
        """Examine the last run; None if the server shows no answers."""
        timed = self._timed(run)
        if timed is None:
            return None
        shows = "logits" not in self.worker.describe().cannot
        gaps = partial(gaps_of, self.worker, self.name) if shows else None
        return LoneServer(
            self._sent, self._together, self._count, self._again, workload, coin, gaps
        ).examine(timed)

    def _again(self) -> Timed | None:
        return self._timed(self.time())

    def _together(self, asked: Sequence[tuple[str, int]], users: int) -> list[str]:
        return self.worker.asked(
            "answers_together",
            lambda reply: [str(text) for text in reply["texts"]],
            model=self.name,
            asked=list(asked),
            users=users,
        )

    def _count(self, text: str) -> int | None:
        asked = {"model": self.name, "text": text}
        return self.worker.asked("text_tokens", lambda reply: _number(reply["n"]), **asked)

    def _timed(self, run: RawRun) -> Timed | None:
        answer = timed_answer(self.worker, self.name)
        return (run.requests[0], answer) if answer and run.requests else None

    def _sent(self, asked: TimedAnswer, temperature: float) -> SentAgain:
        return self.worker.asked(
            "answer_again",
            parsed_answer,
            model=self.name,
            prompt=asked.prompt,
            n_tokens=asked.n_tokens,
            seed=asked.seed,
            temperature=temperature,
        )


def timed_answer(worker: Worker, name: str, user: int = 0) -> TimedAnswer | None:
    """A user's answer of a model's last timed run; None if it shows none."""
    answers = worker.asked(
        "answered",
        lambda reply: [
            TimedAnswer(str(p), int(s), int(n), str(t)) for p, s, n, t in reply["answers"]
        ],
        model=name,
    )
    return answers[user] if answers else None


def gaps_of(worker: Worker, name: str, answers: Sequence[TimedAnswer]) -> list[list[float]]:
    """By how many nats each token of answers is less likely than the likeliest one of a model."""
    return worker.asked(
        "run_gaps",
        lambda reply: [[float(gap) for gap in of_one] for of_one in reply["gaps"]],
        model=name,
        texts=[(answer.prompt, answer.text) for answer in answers],
    )


def is_unlikely(answer: TimedAnswer, gaps: Sequence[float]) -> bool:
    """True if an answer has several tokens that are less likely than others by too many nats.

    A text of another number of tokens was generated as other ones, but for most of them.
    """
    most = _NO_TIE if answer.seed is None else EXCLUDED
    n_least = UNLIKELY_TOKENS if len(gaps) == answer.n_tokens else len(gaps) // 2 + 1
    return sum(gap > most for gap in gaps) >= n_least


def share_of(answer: str, again: str) -> float:
    """The share of the longer text until both differ; 1 for two empty ones."""
    n = max(len(answer), len(again))
    alike = (at for at, (a, b) in enumerate(zip(answer, again, strict=False)) if a != b)
    return next(alike, min(len(answer), len(again))) / n if n else 1.0


def ends_alike(one: str, other: str) -> bool:
    """True if texts are equal, or end with the same words for half of the shorter one.

    A loop of few words is no sign: a model that has finished its text may go on with one.
    """
    n = min(len(one), len(other)) // 2
    end = one[len(one) - n :]
    is_loop = len(set(end.split())) < _WORDS_OF_AN_END
    return one == other or (not is_loop and end == other[len(other) - n :])
