"""The answers by which two servers are compared, and how many requests that needs."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.served_answers import examine_answers
from tests.served import words_after

WORKLOAD = Workload("tg", 32, users=4)
#: As many users that send longer prompts, and get longer answers.
LONGER = Workload("request", 64, depth=64, users=4)


@dataclass
class Arm:
    """A server's process; it makes up the answers to further users if it is not sound.

    Attributes:
        gap: nats of each token of an answer that it judges; None if it shows no log-probabilities.
        gap_of_many: of answers that it judges together; None for the same gap.
        listed: log-probabilities that it lists after any prompt; it has long ones then.
        is_kept: true of a server by URL.
        wait_s: the time of an answer.
        n_at_once: most requests at a time of all of them.
        asked_for: the requests so far, by name.
    """

    is_sound: bool
    timed: str = "m"
    run_number: int = 0
    gap: float | None = None
    gap_of_many: float | None = None
    listed: dict[str, float] | None = None
    is_kept: bool = False
    wait_s: float = 0.0
    n_at_once: ClassVar[int] = 0
    n_under_way: ClassVar[int] = 0
    asked_for: list[str] = field(default_factory=list)

    @property
    def worker(self) -> "Arm":
        """The process itself."""
        return self

    def describe(self) -> Any:
        """It may show no log-probabilities."""
        return SimpleNamespace(cannot={"logits": "it shows none"} if self.gap is None else {})

    def run(self, *_: object) -> None:
        """Time other prompts."""
        self.run_number += 1

    def asked(self, op: str, parse: Any, **of: Any) -> Any:
        """The answers to the timed requests, or that to one alone."""
        self.asked_for.append(op)
        if op == "answer_again":
            Arm.n_under_way += 1
            Arm.n_at_once = max(Arm.n_at_once, Arm.n_under_way)
            time.sleep(self.wait_s)
            Arm.n_under_way -= 1
            return parse({"text": " ".join(words_after(of["prompt"], of["seed"], 32))})
        if op == "run_gaps":
            is_other = len(of["texts"]) > 1 and self.gap_of_many is not None
            gap = self.gap_of_many if is_other else self.gap
            return parse({"gaps": [[gap] * 32 for _ in of["texts"]]})
        if op == "answers_together":
            return parse({"texts": [" ".join(words_after(one, None, n)) for one, n in of["asked"]]})
        if op == "run_listed":
            return parse({"rows": [self.listed for _ in of["prompts"]]})
        if op == "text_tokens":
            return parse({"n": len(of["text"].split())})
        more = " and so on" * (20 if self.listed else 0)
        prompts = [f"prompt {self.run_number} of {user}{more}" for user in range(WORKLOAD.users)]
        made_up = ["" if user == 0 or self.is_sound else " noise" for user in range(WORKLOAD.users)]
        texts = [
            " ".join(words_after(prompt + noise, user, 32))
            for user, (prompt, noise) in enumerate(zip(prompts, made_up, strict=True))
        ]
        return parse({"answers": [*zip(prompts, range(4), [32] * 4, texts, strict=True)]})

    def tokenize(self, _name: str, _text: str) -> list[int]:
        """Too few tokens for an end that repeats a beginning."""
        return [0]


def examined_pair(arms: Sequence[Arm], *, seed: int = 1, **more: Any) -> Any:
    """The findings of an examination of a baseline and a candidate."""
    coin = random.Random(seed)  # noqa: S311  # repeatable
    return examine_answers(cast("Any", tuple(arms)), WORKLOAD, coin, **more)


def test_a_random_user_is_examined() -> None:
    """Answers that are made up for three of four users are found in three of four examinations."""
    found = []
    for seed in range(40):
        examined = examined_pair((Arm(is_sound=True), Arm(is_sound=False)), seed=seed)
        assert examined is not None
        base, candidate = examined
        assert base.is_repeated
        found.append(candidate.unlike(base) is not None)
    assert 24 <= sum(found) <= 36


@pytest.mark.parametrize(
    ("others", "is_judged"),
    [((WORKLOAD,), True), ((WORKLOAD, LONGER), False), ((replace(LONGER, users=1),), True)],
)
def test_requests_that_others_exceed_are_not_judged_again(
    others: Sequence[Workload], *, is_judged: bool
) -> None:
    """Those of as many users with longer prompts and answers are judged."""
    arms = Arm(is_sound=True), Arm(is_sound=True)
    examined_pair(arms, others=others)
    assert ("answers_together" in arms[1].asked_for) is is_judged


@pytest.mark.parametrize(("is_kept", "n_at_once"), [(False, 2), (True, 1)])
def test_requests_to_servers_by_url_are_sent_in_turn(*, is_kept: bool, n_at_once: int) -> None:
    """Two URLs may be of one server, which mixes up two requests for log-probabilities."""
    Arm.n_at_once = 0
    arms = [Arm(is_sound=True, is_kept=is_kept, wait_s=0.01) for _ in range(2)]
    examined_pair(arms)
    assert Arm.n_at_once == n_at_once


@pytest.mark.parametrize("gap", [0.0, 5.0])
def test_an_answer_that_does_not_come_again_is_judged(gap: float) -> None:
    """The baseline's log-probabilities allow two of them, or there are six requests and a finding.

    One answer with a wrong end may be allowed.
    """
    base = Arm(is_sound=True, gap=gap)
    candidate = Arm(is_sound=False, gap=0.0)
    examined = examined_pair((base, candidate))
    assert examined is not None
    assert examined[1].n_tries == (6 if gap else 2)
    assert (examined[1].unlike(examined[0]) is not None) is bool(gap)


@pytest.mark.parametrize(("own", "is_found"), [(2.0, True), (3.0, False)])
def test_words_that_are_excluded_in_each_answer_are_found(own: float, *, is_found: bool) -> None:
    """The baseline repeats none of its answers, and their words are half as far from the likeliest.

    Less far they could be of samplers without min-p.
    """
    base = Arm(is_sound=False, gap=5.0, gap_of_many=own)
    candidate = Arm(is_sound=False, gap=0.0)
    examined = examined_pair((base, candidate))
    found = examined and examined[1].unlike(examined[0])
    assert (found is not None and "6 of 6 answers" in found.found) is is_found


@pytest.mark.parametrize(
    ("listed", "is_found"),
    [
        ({"a": -0.3, "b": -2.0}, False),
        ({"a": -0.35, "b": -1.8}, False),
        ({"a": -0.9, "b": -0.8}, True),
        ({"c": -0.3, "d": -2.0}, True),
    ],
)
def test_the_likeliest_tokens_at_a_timed_depth_are_compared(
    listed: dict[str, float], *, is_found: bool
) -> None:
    """Both servers list them, and show no other log-probabilities."""
    base = Arm(is_sound=True, listed={"a": -0.3, "b": -2.0})
    arms = base, Arm(is_sound=True, listed=listed)
    examined = examined_pair(arms)
    assert examined is not None
    found = examined[1].unlike(examined[0])
    assert (found is not None and "the mean KLD from the baseline" in found.found) is is_found
