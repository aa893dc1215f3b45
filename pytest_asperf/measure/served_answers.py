"""Examines a server's timed answers: a computed answer comes again for its prompt and its seed.

Every timed request has a seed of its own and a prompt that no server has seen. After a random run
its requests are sent again, in the same form, to the server and to that of the other build. A
server that replays, shortens or makes up answers cannot know the baseline's answer to a new prompt.

If both show log-probabilities, all users' likeliest answers to such prompts are judged by those of
the baseline: few tokens of a timed answer do not show that a coarser model gave it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.lone_server import AGREES, TimedAnswer, share_of, timed_answer
from pytest_asperf.measure.running_arms import TimedArm

#: Requests that are compared, until one agrees. Rounding in batches of another shape can choose
#: another token, and with it all that follow.
_TRIES: Final = 6
#: Answers that are judged by log-probabilities at least, and for each of several users; and tokens
#: of each.
_LEAST_JUDGED: Final = 4
_JUDGED_OF_USER: Final = 2
_JUDGED_TOKENS: Final = 32
#: A token that is less likely than the likeliest one by so many nats is no near-tie. Answers with
#: so many of them are wrong, and so many such answers are a finding: see docs/guards.md.
_NO_TIE: Final = 0.3
_UNLIKELY_TOKENS: Final = 3
_UNLIKELY_ANSWERS: Final = 2
_MOST_ROUNDS: Final = 3
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
    #: likeliest answers, and those that the baseline finds unlikely; None if it was not requested
    unlikely: tuple[int, int] | None = None

    def __str__(self) -> str:
        judged = "; {1} of {0} likeliest answers are unlikely" if self.unlikely else ""
        return (
            f"{self.own:.0%} of an answer given again by its server, {self.other:.0%} by that of "
            f"the other build, in {self.n_tries} request{'s' * (self.n_tries != 1)}"
            f"{judged.format(*(self.unlikely or ()))}"
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
    def is_repeated(self) -> bool:
        """True if the server gives an answer again."""
        return self.own >= AGREES

    @property
    def is_unlikely(self) -> bool:
        """True if its likeliest answers are not those of the baseline's model."""
        return self.unlikely is not None and self.unlikely[1] >= _UNLIKELY_ANSWERS

    @property
    def findings(self) -> tuple[GuardFinding, ...]:
        """The signs that timed answers are not whole."""
        return (guards.shortened_answer(*self.shortened),) if self.shortened else ()

    def unlike(self, baseline: ExaminedAnswers) -> GuardFinding | None:
        """Signs that the answers are not those of the baseline's model."""
        if self.unlikely and self.is_unlikely:
            return guards.unlikely_answers(*self.unlikely)
        agree = max(self.other, baseline.other)
        if self.is_repeated and agree >= AGREES:
            return None
        return guards.other_answers(self.n_tries, self.own, agree)


ExaminedServers: TypeAlias = "tuple[ExaminedAnswers, ExaminedAnswers]"


def examine_answers(
    arms: tuple[TimedArm, TimedArm], workload: Workload, coin: random.Random
) -> ExaminedServers | None:
    """Compare a random user's answers of two servers; None if that shows nothing about them.

    It shows nothing if the baseline does not repeat its own answers, or if only the choice by a
    seed differs between the builds: their likeliest answers are the same.
    """
    user = coin.randrange(workload.users)
    found = [_examined(arms, side, workload, user) for side in range(2)]
    base, candidate = (each for each in found)
    if base is None or candidate is None:
        return None
    if base.findings or candidate.findings:
        return base, candidate
    candidate = replace(candidate, unlikely=_unlikely(arms, workload))
    if candidate.is_unlikely:
        return base, candidate
    is_open = candidate.is_repeated and candidate.unlike(base) is not None
    if not base.is_repeated or (is_open and _choose_alike(arms, workload)):
        return None
    return base, candidate


def _examined(
    arms: tuple[TimedArm, TimedArm], side: int, workload: Workload, user: int
) -> ExaminedAnswers | None:
    """The answers of one build; the other's model computes them too."""
    examined = ExaminedAnswers()
    while examined.n_tries < _TRIES and min(examined.own, examined.other) < AGREES:
        answer = _next(arms[side], workload, user, is_new=examined.n_tries > 0)
        if answer is None:
            return None
        own, other = (_again(arms[number], answer) for number in (side, 1 - side))
        examined = examined.compared(answer.text, own, other)
    return examined


def _unlikely(arms: tuple[TimedArm, TimedArm], workload: Workload) -> tuple[int, int] | None:
    """The candidate's likeliest answers, and those that the baseline finds unlikely, by number.

    None if a server shows no log-probabilities, or the baseline's own answers are as unlikely.
    """
    base, candidate = arms
    if workload.sampled or any("logits" in arm.worker.describe().cannot for arm in arms):
        return None
    unlikely = list[bool]()
    for n_rounds in range(1, _MOST_ROUNDS + 1):
        unlikely += _judged(candidate, base, workload)
        if not any(unlikely):
            break
        if sum(unlikely) >= _UNLIKELY_ANSWERS:
            own = [is_one for _ in range(n_rounds) for is_one in _judged(base, base, workload)]
            if 2 * sum(own) >= sum(unlikely):
                return None
            break
    return len(unlikely), sum(unlikely)


def _judged(arm: TimedArm, judge: TimedArm, workload: Workload) -> list[bool]:
    """True for each of a server's likeliest answers that another server finds unlikely.

    All users send prompts of a new timed run at once, and then their next one. Each lacks its first
    words, so that it is in no cache.
    """
    arm.run(workload, 0, 1)
    n = max(_LEAST_JUDGED, _JUDGED_OF_USER * workload.users)
    timed = [timed_answer(arm.worker, arm.timed, user) for user in range(workload.users)]
    prompts = [answer.prompt for answer in timed if answer]
    asked = [
        (prompts[k % len(prompts)].split(" ", 1 + k // len(prompts))[-1], _JUDGED_TOKENS)
        for k in range(n)
    ]
    texts = arm.worker.asked(
        "answers_together",
        lambda reply: [str(text) for text in reply["texts"]],
        model=arm.timed,
        asked=asked,
        users=workload.users,
    )
    gaps = judge.worker.asked(
        "run_gaps",
        lambda reply: [[float(gap) for gap in of_one] for of_one in reply["gaps"]],
        model=judge.timed,
        texts=[(prompt, text) for (prompt, _), text in zip(asked, texts, strict=True)],
    )
    # A text of another number of tokens was generated as other tokens.
    return [
        len(of_one) == _JUDGED_TOKENS and sum(gap > _NO_TIE for gap in of_one) >= _UNLIKELY_TOKENS
        for of_one in gaps
    ]


def _choose_alike(arms: tuple[TimedArm, TimedArm], workload: Workload) -> bool:
    """True if the likeliest answers of both builds agree."""
    for _ in range(_TRIES):
        answer = _next(arms[0], workload, is_new=True)
        if answer is None:
            return False
        one, other = (_again(arm, replace(answer, seed=None)) for arm in arms)
        if share_of(one, other) >= AGREES:
            return True
    return False


def _next(arm: TimedArm, workload: Workload, user: int = 0, *, is_new: bool) -> TimedAnswer | None:
    """A user's answer of the last timed run, or of a new one."""
    if is_new:
        arm.run(workload, 0, 1)
    return timed_answer(arm.worker, arm.timed, user)


def _again(arm: TimedArm, answer: TimedAnswer) -> str:
    """The text that a server answers to the same request."""
    asked = {"prompt": answer.prompt, "n_tokens": answer.n_tokens, "seed": answer.seed}
    return arm.worker.asked("answer_again", lambda of: str(of["text"]), model=arm.timed, **asked)
