"""A reply with a draft is timed in parts that go on where the one before ended."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.drafted_target import DRAFT, TARGET, DraftedTarget
from pytest_asperf.worker.speculation import Generation
from tests.engine_facts import loaded

SD = Workload("sd", 64)
#: Two prompts, and the replies that are known.
PROMPTS = (("code", (1, 2)), ("prose", (3, 4, 5)))
REPLIES = {0: list(range(100, 164)), 1: list(range(200, 264))}


class _Pair:
    """Both models: notes each text that they generate after, and the number of new tokens."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], int]] = []

    def generate(self, text: Sequence[int], *, n_new: int, **_: Any) -> Generation:
        """Generate nothing."""
        self.asked.append((list(text), n_new))
        return Generation([0] * n_new, 1, [])


def _target(
    *, rollback: str = "trim", served: str | None = None, known: bool = True
) -> tuple[DraftedTarget, _Pair]:
    drafted, pair = object.__new__(DraftedTarget), _Pair()
    context: Any = SimpleNamespace(rollback=rollback)
    drafted._pair = pair  # type: ignore[assignment]  # of this file
    drafted._loaded = {TARGET: loaded(served=served)}
    drafted.contexts = {TARGET: context, DRAFT: context}
    drafted.prompts, drafted.drafts, drafted.seed = PROMPTS, True, 0
    drafted.pairing = SimpleNamespace(n_tokens=64, k=4, temperature=0.0)  # type: ignore[assignment]
    replies = REPLIES if known else {}
    drafted.left = SimpleNamespace(replies={}, outputs=replies)  # type: ignore[assignment]
    return drafted, pair


def test_parts_follow_each_other_through_all_replies() -> None:
    """Each text is a prompt and the beginning of its own reply; after the last part the next."""
    drafted, pair = _target()
    for turn in range(9):
        drafted.run(SD, turn, 4)
    first = [([1, 2, *REPLIES[0][:n]], 16) for n in (0, 16, 32, 48)]
    second = [([3, 4, 5, *REPLIES[1][:n]], 16) for n in (0, 16, 32, 48)]
    assert pair.asked == [*first, *second, first[0]]


def test_a_part_follows_half_as_many_tokens_of_its_own() -> None:
    """Whole replies have more, and both are the warm-up of new processes, too."""
    drafted, pair = _target()
    for do in (drafted.warm_up, drafted.settle):
        do(SD, 1, 4)
        do(SD, 1, 1)
    assert pair.asked == [([1, 2, *REPLIES[0][:16]], 8), ([3, 4, 5], 16)] * 2


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ({}, 4),
        ({"rollback": "checkpoint"}, 1),
        ({"served": "llama_server"}, 1),
        ({"known": False}, 1),
    ],
)
def test_what_cannot_go_on_has_no_parts(target: dict[str, Any], parts: int) -> None:
    """A memory that cannot drop its end, a server, and replies that are not known yet."""
    assert _target(**target)[0].most_parts(SD) == parts
