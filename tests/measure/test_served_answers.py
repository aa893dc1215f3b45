"""The user by whose answers two servers are compared."""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.served_answers import examine_answers
from tests.served import words_after

WORKLOAD = Workload("tg", 32, users=4)


@dataclass
class Arm:
    """A server's process; it makes up the answers to further users if it is not sound."""

    is_sound: bool
    timed: str = "m"
    run_number: int = 0

    @property
    def worker(self) -> "Arm":
        """The process itself."""
        return self

    def describe(self) -> Any:
        """It shows no log-probabilities."""
        return SimpleNamespace(cannot={"logits": "it shows none"})

    def run(self, *_: object) -> None:
        """Time other prompts."""
        self.run_number += 1

    def asked(self, op: str, parse: Any, **of: Any) -> Any:
        """The answers to the timed requests, or that to one alone."""
        if op == "answer_again":
            return parse({"text": " ".join(words_after(of["prompt"], of["seed"], 32))})
        if op == "answers_together":
            return parse({"texts": [" ".join(words_after(one, None, n)) for one, n in of["asked"]]})
        prompts = [f"prompt {self.run_number} of {user}" for user in range(WORKLOAD.users)]
        made_up = ["" if user == 0 or self.is_sound else " noise" for user in range(WORKLOAD.users)]
        texts = [
            " ".join(words_after(prompt + noise, user, 32))
            for user, (prompt, noise) in enumerate(zip(prompts, made_up, strict=True))
        ]
        return parse({"answers": [*zip(prompts, range(4), [32] * 4, texts, strict=True)]})


def test_a_random_user_is_examined() -> None:
    """Answers that are made up for three of four users are found in three of four examinations."""
    found = []
    for seed in range(40):
        arms = cast("Any", (Arm(is_sound=True), Arm(is_sound=False)))
        coin = random.Random(seed)  # noqa: S311  # repeatable
        examined = examine_answers(arms, WORKLOAD, coin)
        assert examined is not None
        base, candidate = examined
        assert base.is_repeated
        found.append(candidate.unlike(base) is not None)
    assert 24 <= sum(found) <= 36
