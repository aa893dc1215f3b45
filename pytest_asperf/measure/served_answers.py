"""Examines a server's timed answers: a computed answer comes again for its prompt and its seed.

Every timed request has a seed of its own and a prompt that no server has seen. After a random run
its requests are sent again, in the same form, to the server and to that of the other build. A
server that replays, shortens or makes up answers cannot know the baseline's answer to a new prompt.

All users' likeliest answers to such prompts, and a sampled one, are judged by the baseline: few
tokens of a timed answer do not show that a coarser model gave it. It judges by log-probabilities
if both show them, otherwise by the likeliest next words. Requests that others of a gate exceed in
both lengths are not judged again. Log-probabilities must be alike at the deepest timed context,
too, where the beginning of the text matters.

If a seed chooses other words in the candidate, sampled words must still be those of a model: now
and then the baseline's likeliest ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from statistics import fmean, median
from typing import Final, TypeAlias, TypeVar

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding, klds
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process.ways import REPEATED, end_of, listed_after
from pytest_asperf.measure.lone_server import (
    AGREES,
    EXCLUDED,
    UNLIKELY_TOKENS,
    TimedAnswer,
    are_sampled,
    gaps_of,
    is_unlikely,
    likeliest_words,
    share_of,
    timed_answer,
)
from pytest_asperf.measure.running_arms import TimedArm

#: Requests that are compared, until one agrees. Rounding in batches of another shape can choose
#: another token, and with it all that follow.
_TRIES: Final = 6
#: Answers that are judged at least, and for each of several users; and tokens of each. The first
#: ones, as many as a finding needs, have as many as are timed, up to a limit.
_LEAST_JUDGED: Final = 4
_JUDGED_OF_USER: Final = 2
_JUDGED_TOKENS: Final = 32
_MOST_JUDGED_TOKENS: Final = 256
#: So many answers with unlikely words are a finding.
_UNLIKELY_ANSWERS: Final = 2
#: So many allowed answers are no chance: now and then one with a wrong end is allowed.
_ALLOWED_ANSWERS: Final = 2
#: By so much the least likely words of timed answers are less likely than the baseline's own: they
#: were chosen by no wider samplers, such as those without min-p.
_LESS_LIKELY: Final = 2.0
#: Words at the end of an answer that are judged without log-probabilities.
_LAST_WORDS: Final = 5
_MOST_ROUNDS: Final = 3
#: Words of a text's beginning that are repeated at its end.
_LISTED_WORDS: Final = 24
#: Characters that an answer may lack: a character of several tokens can be incomplete.
_UNFINISHED: Final = 4


@dataclass(frozen=True, slots=True)
class ExaminedAnswers:
    """Timed answers of one build's server."""

    n_tries: int = 0  #: compared requests
    own: float = 0.0  #: the largest share of an answer that the server gave again
    other: float = 0.0  #: the largest share that the other build's server gave
    #: characters of an answer, and of a longer one that begins with it
    shortened: tuple[int, int] | None = None
    #: timed answers that did not come again, and that the baseline's log-probabilities allow
    n_allowed: int = 0
    #: the gap of the least likely token of each timed answer that was judged, nats
    largest_gaps: tuple[float, ...] = ()
    #: judged answers, and those that the baseline finds unlikely; None if none were judged
    unlikely: tuple[int, int] | None = None
    #: tokens of a text as deep as the deepest timed one, the mean KLD from the baseline at its end,
    #: and its limit, nats; None if it was not requested
    end: tuple[int, float, float] | None = None
    is_made_up: bool = False  #: True if sampled words are not those of a model

    def __str__(self) -> str:
        allowed = ", and allowed by the baseline's log-probabilities" if self.is_allowed else ""
        judged = "; {1} of {0} answers are unlikely" if self.unlikely else ""
        end = "; KLD from the baseline after {} tokens {:.2g} nats" if self.end else ""
        return (
            f"{self.own:.0%} of an answer given again by its server, {self.other:.0%} by that of "
            f"the other build, in {self.n_tries} request{'s' * (self.n_tries != 1)}"
            f"{allowed}{judged.format(*(self.unlikely or ()))}{end.format(*(self.end or ()))}"
        )

    def compared(self, answer: str, own: str, other: str) -> ExaminedAnswers:
        """With another answer, its repetition, and the other build's answer."""
        n = len(answer)
        longer = [
            len(text)
            for text in (own, other)
            if text.startswith(answer) and len(text) > n + _UNFINISHED
        ]
        return replace(
            self,
            n_tries=self.n_tries + 1,
            own=max(self.own, share_of(answer, own)),
            other=max(self.other, share_of(answer, other)),
            shortened=(n, max(longer)) if longer else self.shortened,
        )

    @property
    def is_allowed(self) -> bool:
        """True if the baseline's log-probabilities allow more answers than chance explains."""
        return self.n_allowed >= _ALLOWED_ANSWERS

    @property
    def is_repeated(self) -> bool:
        """True if the server gives an answer again."""
        return self.own >= AGREES

    @property
    def is_alike(self) -> bool:
        """True if both servers give an answer again, or the baseline might have given it."""
        return self.is_allowed or min(self.own, self.other) >= AGREES

    @property
    def sign(self) -> GuardFinding | None:
        """The sign that its answers are not those of the baseline's model."""
        if self.unlikely and self.unlikely[1] >= _UNLIKELY_ANSWERS:
            return guards.unlikely_answers(*self.unlikely)
        if self.end and self.end[1] > self.end[2]:
            return guards.lost_context(*self.end)
        return guards.made_up_samples() if self.is_made_up else None

    @property
    def findings(self) -> tuple[GuardFinding, ...]:
        """The signs that timed answers are not whole."""
        return (guards.shortened_answer(*self.shortened),) if self.shortened else ()

    def unlike(self, baseline: ExaminedAnswers) -> GuardFinding | None:
        """Signs that the answers are not those of the baseline's model."""
        if self.sign:
            return self.sign
        if self.is_alike:
            return None
        agree = max(self.other, baseline.other)
        # Its server may choose another near-tie from then on, as it has the prompt in its cache.
        if min(agree, max(self.own, self.other)) >= AGREES:
            return None
        return guards.other_answers(self.n_tries, self.own, agree)


Answer = TypeVar("Answer")
ExaminedServers: TypeAlias = "tuple[ExaminedAnswers, ExaminedAnswers]"


def examine_answers(
    arms: tuple[TimedArm, TimedArm],
    workload: Workload,
    coin: random.Random,
    *,
    others: Iterable[Workload] = (),
) -> ExaminedServers | None:
    """Compare a random user's answers of two servers; None if that shows nothing about them.

    It shows nothing if the baseline does not repeat its own answers, or if only the choice by a
    seed differs between the builds: their likeliest answers are the same, and sampled ones are
    sampled. The context is compared after the deepest workload among others, and answers are judged
    unless one of them has longer requests.
    """
    user = coin.randrange(workload.users)
    is_shown = not any("logits" in arm.worker.describe().cannot for arm in arms)
    is_exceeded = any(_exceeds(other, workload) for other in others)
    candidate = _examined(arms, 1, workload, user, is_judged=is_shown and not is_exceeded)
    # Then the baseline's own answers decide nothing, and one shows if it is shortened.
    is_alike = candidate is not None and candidate.is_alike
    base = _examined(arms, 0, workload, user, most=1 if is_alike else _TRIES)
    if base is None or candidate is None:
        return None
    if base.findings or candidate.findings:
        return base, candidate
    is_deepest = all(other.n_ctx <= workload.n_ctx for other in others)
    candidate = replace(
        candidate,
        unlikely=None if is_exceeded else _unlikely(arms, workload, candidate, is_shown=is_shown),
        end=(_end if is_shown else _listed_end)(arms) if is_deepest else None,
    )
    if candidate.sign or is_alike:
        return base, candidate
    if _are_excluded(arms[0], workload, candidate.largest_gaps):
        return base, replace(candidate, unlikely=(_TRIES, _TRIES))
    is_open = candidate.is_repeated and candidate.unlike(base) is not None
    if base.is_repeated and not (is_open and _choose_alike(arms, workload)):
        return base, candidate
    return (base, replace(candidate, is_made_up=True)) if _makes_up(arms, workload) else None


def _exceeds(other: Workload, workload: Workload) -> bool:
    """True if as many users send no shorter prompts, and get no shorter answers, and one longer."""
    kinds = [(one.users, one.warm, one.sampled, one.after) for one in (other, workload)]
    (prompt, answer), (own_prompt, own_answer) = map(_lengths, (other, workload))
    is_longer = (prompt, answer) != (own_prompt, own_answer)
    return kinds[0] == kinds[1] and prompt >= own_prompt and answer >= own_answer and is_longer


def _lengths(workload: Workload) -> tuple[int, int]:
    """Tokens of a workload's prompt, and of its answer, that count."""
    return (workload.n_ctx, 0) if workload.is_prompt else (workload.depth, workload.n_tokens)


def _examined(
    arms: tuple[TimedArm, TimedArm],
    side: int,
    workload: Workload,
    user: int,
    *,
    is_judged: bool = False,
    most: int = _TRIES,
) -> ExaminedAnswers | None:
    """The answers of one build; the other's model computes them too.

    A long answer that did not come again need not be requested six times if it can be judged by the
    other build's log-probabilities, and these exclude none of its tokens, as min-p does.
    """
    examined = ExaminedAnswers()
    while examined.n_tries < most and not examined.is_alike:
        answer = _next(arms[side], workload, user, is_new=examined.n_tries > 0)
        if answer is None:
            return None
        own, other = _of_each((arms[side], arms[1 - side]), partial(_again, answer=answer))
        is_again = min(share_of(answer.text, own), share_of(answer.text, other)) >= AGREES
        examined = examined.compared(answer.text, own, other)
        if is_judged and not is_again and answer.n_tokens >= _JUDGED_TOKENS:
            judge = arms[1 - side]
            (gap,) = _largest_gaps(judge, [answer])
            n_allowed = examined.n_allowed + (gap <= EXCLUDED)
            largest = (*examined.largest_gaps, gap)
            examined = replace(examined, n_allowed=n_allowed, largest_gaps=largest)
    return examined


def _largest_gaps(judge: TimedArm, answers: Sequence[TimedAnswer]) -> list[float]:
    """The gap of the least likely token of each answer; infinite without tokens."""
    return [max(gaps, default=inf) for gaps in gaps_of(judge.worker, judge.timed, answers)]


def _are_excluded(base: TimedArm, workload: Workload, largest_gaps: Sequence[float]) -> bool:
    """True if each timed answer has a word that is excluded, and by far less likely than its own.

    A seed may choose other words in each build, and the baseline repeat none of its answers.
    """
    if len(largest_gaps) < _TRIES or min(largest_gaps) <= EXCLUDED:
        return False
    timed = (_next(base, workload, is_new=True) for _ in range(_TRIES))
    own = _largest_gaps(base, [answer for answer in timed if answer])
    return bool(own) and median(largest_gaps) >= _LESS_LIKELY * median(own)


def _unlikely(
    arms: tuple[TimedArm, TimedArm], workload: Workload, timed: ExaminedAnswers, *, is_shown: bool
) -> tuple[int, int] | None:
    """The candidate's judged answers, and those that the baseline finds unlikely, by number.

    None if the baseline's own answers are as unlikely.
    """
    base, candidate = arms
    if workload.sampled:
        return None
    judged = partial(_judged, judge=base, workload=workload, is_shown=is_shown)
    unlikely = list[bool]()
    for n_rounds in range(1, _MOST_ROUNDS + 1):
        is_new = n_rounds > 1
        # A timed answer that was judged is a sampled one.
        unlikely += judged(candidate, is_new=is_new, is_sampled=is_new or not timed.is_allowed)
        if not any(unlikely):
            break
        if sum(unlikely) >= _UNLIKELY_ANSWERS:
            own = [
                is_one
                for _ in range(n_rounds)
                for is_one in judged(base, is_new=True, is_sampled=True)
            ]
            if 2 * sum(own) >= sum(unlikely):
                return None
            break
    return len(unlikely), sum(unlikely)


def _judged(
    arm: TimedArm,
    *,
    judge: TimedArm,
    workload: Workload,
    is_shown: bool,
    is_new: bool,
    is_sampled: bool,
) -> list[bool]:
    """True for each of a server's answers that another server finds unlikely.

    All users send prompts of the last timed run, or a new one, at once, and then their next one.
    Each lacks its first words, so that it is in no cache. The last answer may be sampled.
    """
    if is_new:
        arm.run(workload, 0, 1)
    n = max(_LEAST_JUDGED, _JUDGED_OF_USER * workload.users)
    timed = [timed_answer(arm.worker, arm.timed, user) for user in range(workload.users)]
    prompts = [answer.prompt for answer in timed if answer]
    n_timed = max(_JUDGED_TOKENS, *(answer.n_tokens for answer in timed if answer))
    sizes = [min(n_timed, _MOST_JUDGED_TOKENS)] * _UNLIKELY_ANSWERS + [_JUDGED_TOKENS] * n
    asked = [
        (prompts[k % len(prompts)].split(" ", 1 + k // len(prompts))[-1], sizes[k])
        for k in range(n)
    ]
    texts = arm.worker.asked(
        "answers_together",
        lambda reply: [str(text) for text in reply["texts"]],
        model=arm.timed,
        asked=asked,
        users=workload.users,
    )
    answers = [
        TimedAnswer(prompt, None, size, text)
        for (prompt, size), text in zip(asked, texts, strict=True)
    ]
    if not is_shown:
        return [_has_other_words(answer, judge) for answer in answers]
    answers += islice(_sampled(arm, workload), 1 if is_sampled else 0)
    gaps = gaps_of(judge.worker, judge.timed, answers)
    return [*map(is_unlikely, answers, gaps)]


def _has_other_words(answer: TimedAnswer, judge: TimedArm) -> bool:
    """True if several of the last words of a likeliest answer are not another server's."""
    words = islice(likeliest_words(answer, partial(_again, judge)), _LAST_WORDS)
    return sum(not is_likeliest for is_likeliest in words) >= UNLIKELY_TOKENS


def _end(arms: tuple[TimedArm, TimedArm]) -> tuple[int, float, float] | None:
    """Tokens of the last run's context, the KLD between both builds at its end, and its limit.

    None if it is too short for an end that repeats its beginning, or one has no room for it.
    """
    base, _ = arms
    answer = timed_answer(base.worker, base.timed)
    tokens = base.worker.tokenize(base.timed, answer.prompt + answer.text) if answer else []
    if len(tokens) <= 2 * REPEATED:
        return None
    true, other = _of_each(arms, lambda arm: end_of(arm.worker, arm.timed, tokens))
    if true.keys() != other.keys():
        return None
    return max(true) + 1, fmean(klds(true, other).values()), guards.MOST_UNLIKE_KLD


def _listed_end(arms: tuple[TimedArm, TimedArm]) -> tuple[int, float, float] | None:
    """As `_end`, by the likeliest tokens that both servers list after words of such an end.

    None if one lists none. The longest prompt comes first: see `likeliest_words`.
    """
    base, _ = arms
    answer = timed_answer(base.worker, base.timed)
    words = (answer.prompt + answer.text).split(" ") if answer else []
    if len(words) <= 2 * REPEATED:
        return None
    body, again = words[:-REPEATED], words[:_LISTED_WORDS]
    prompts = [" ".join([*body, *again[:n]]) for n in range(_LISTED_WORDS, 0, -1)]
    true, other = _of_each(arms, lambda arm: listed_after(arm.worker, arm.timed, prompts))
    if not true or not other:
        return None
    n = base.worker.asked(
        "text_tokens", lambda of: int(of["n"] or 0), model=base.timed, text=prompts[0]
    )
    return n, fmean(map(guards.kld_of_listed, true, other)), guards.MOST_UNLIKE_LISTED


def _makes_up(arms: tuple[TimedArm, TimedArm], workload: Workload) -> bool:
    """True if the candidate's sampled words are no model's, by the baseline's likeliest ones.

    The baseline's own have to be, as in no chat: it does not go on with words of an answer.
    """
    base, candidate = arms
    judge = partial(_again, base)
    is_sampled = are_sampled(_sampled(candidate, workload), judge)
    return is_sampled is False and are_sampled(_sampled(base, workload), judge) is True


def _sampled(arm: TimedArm, workload: Workload) -> Iterator[TimedAnswer]:
    """Answers to requests like timed ones, and long enough to have some words."""
    for number in range(_TRIES):
        if answer := _next(arm, workload, is_new=number > 0):
            asked = replace(answer, n_tokens=_JUDGED_TOKENS)
            yield replace(asked, text=_again(arm, asked))


def _choose_alike(arms: tuple[TimedArm, TimedArm], workload: Workload) -> bool:
    """True if the likeliest answers of both builds agree."""
    for _ in range(_TRIES):
        answer = _next(arms[0], workload, is_new=True)
        if answer is None:
            return False
        one, other = _of_each(arms, partial(_again, answer=replace(answer, seed=None)))
        if share_of(one, other) >= AGREES:
            return True
    return False


def _next(arm: TimedArm, workload: Workload, user: int = 0, *, is_new: bool) -> TimedAnswer | None:
    """A user's answer of the last timed run, or of a new one."""
    if is_new:
        arm.run(workload, 0, 1)
    return timed_answer(arm.worker, arm.timed, user)


def _of_each(
    arms: tuple[TimedArm, TimedArm], ask: Callable[[TimedArm], Answer]
) -> tuple[Answer, Answer]:
    """The answers of two servers, at once if each was started for it: no time is judged.

    Two URLs may be of one server.
    """
    are_own = arms[0].worker is not arms[1].worker and not any(arm.is_kept for arm in arms)
    with ThreadPoolExecutor(2 if are_own else 1) as pool:
        one, other = pool.map(ask, arms)
    return one, other


def _again(arm: TimedArm, answer: TimedAnswer) -> str:
    """The text that a server answers to the same request."""
    asked = {"prompt": answer.prompt, "n_tokens": answer.n_tokens, "seed": answer.seed}
    return arm.worker.asked("answer_again", lambda of: str(of["text"]), model=arm.timed, **asked)
