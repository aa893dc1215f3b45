"""The time of a workload, by the replies of a server's users."""

from dataclasses import replace
from itertools import accumulate
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.guards import joined_stamps
from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.worker.engine import Asked, RefusalError
from pytest_asperf.worker.served_api import Api
from pytest_asperf.worker.served_model import ServedModel, TimedReply, came_in_bursts, timing
from pytest_asperf.worker.serving.events import OutputEvent, Reply
from pytest_asperf.worker.serving.payload import TokenCounts
from pytest_asperf.worker.serving.record import Endpoint, StreamRecord


def reply(
    sent_ns: int, *events: tuple[int, int | None], n: int | None = None, finish: str = "length"
) -> TimedReply:
    """A reply with events at these times, with the tokens so far if they have them."""
    outputs = tuple(OutputEvent(ns, "x", so_far) for ns, so_far in events)
    counts = TokenCounts(n_prompt=8, n_output=n)
    said = Reply(outputs, counts, {}, "m", "b1", finish, is_cut=False, faults=())
    closed_ns = events[-1][0] + 1 if events else sent_ns
    record = StreamRecord(0, sent_ns, 1, (), closed_ns, 200, (), 0, None)
    return TimedReply(record, said, n)


USERS = (
    reply(0, (100, None), (150, None), (200, None), n=3),
    reply(10, (120, None), (180, None), (260, None), n=3),
)


@pytest.mark.parametrize(
    ("kind", "elapsed_ns", "step_ns"),
    [
        ("pp", 120, ()),
        ("ttft", 105, (105,)),
        ("request", 225, (105,)),
        ("tg", 160, ()),
        ("itl", 160, ()),
    ],
)
def test_users_at_once(kind: str, elapsed_ns: int, step_ns: tuple[int, ...]) -> None:
    """Means of each user's waits; for generation the time of all, without prompts."""
    timed = timing(Asked(kind, 2, 0, 2, ""), USERS, 5)
    assert (timed.n_tokens, timed.elapsed_ns, timed.step_ns) == (4, elapsed_ns, step_ns)
    assert [request["start_ns"] for request in timed.requests] == [0, 10]
    assert {request["lag_ns"] for request in timed.requests} == {5}


@pytest.mark.parametrize(
    ("kind", "step_ns"), [("tg", (50, 50)), ("request", (100, 50, 50)), ("ttft", (100,))]
)
def test_one_user_has_each_gap(kind: str, step_ns: tuple[int, ...]) -> None:
    """The gaps between its tokens, behind TTFT if a prompt is timed."""
    assert timing(Asked(kind, 2, 0, 1, ""), USERS[:1], 0).step_ns == step_ns


def test_tokens_that_come_with_the_first_are_not_timed() -> None:
    """Three of nine tokens came at once: six in 60 ns are eight in 80."""
    bundled = reply(0, (100, 3), (160, 9), n=9)
    assert timing(Asked("tg", 8, 0, 1, ""), [bundled], 0).elapsed_ns == 80
    with pytest.raises(RefusalError, match="all 9 tokens came at once"):
        timing(Asked("tg", 8, 0, 1, ""), [reply(0, (100, 9), n=9)], 0)


AT_ONCE = reply(0, (100, 9), n=9)
IN_BURSTS = reply(0, *((100 + 40 * (n // 4) + n % 4 // 3, n + 1) for n in range(9)), n=9)
AS_IT_SHOULD = reply(0, *((100 + 5 * n, n + 1) for n in range(9)), n=9)


class Late(ServedModel):
    """A served model of which the first replies are read late, and later ones as they come."""

    def __init__(self, late: TimedReply, n_late: int) -> None:
        api = Api(Endpoint("http", "127.0.0.1", 1), "/v1/completions")
        super().__init__(api, lambda text: len(text.split()), {}, {})
        self.todo = [late] * n_late + [AS_IT_SHOULD]

    def _sent(self, *_: object) -> list[StreamRecord]:
        return [self.todo[0].record]

    def checked(self, _: StreamRecord) -> TimedReply:
        """The next reply."""
        return self.todo.pop(0)


@pytest.mark.parametrize(("kind", "late"), [("tg", AT_ONCE), ("itl", AT_ONCE), ("itl", IN_BURSTS)])
def test_a_client_that_was_held_up_reads_another_reply(kind: str, late: TimedReply) -> None:
    """On a busy machine one reply may be read at once, or in bursts."""
    work = Asked(kind, 8, 0, 1, " ".join("word" for _ in range(400)))
    assert Late(late, 3).serve(work).requests == (AS_IT_SHOULD.facts | {"lag_ns": ANY},)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_bursts_are_those_of_the_guard(gaps: list[int]) -> None:
    """Worker and guard cannot share a rule, as a worker imports no other room; they agree."""
    times = accumulate([100, *gaps])
    answer = reply(0, *((ns, n + 1) for n, ns in enumerate(times)), n=len(gaps) + 1)
    request = ServedRequest(**answer.facts)
    is_found = joined_stamps([request]) is not None
    assert came_in_bursts(Asked("itl", len(gaps), 0, 1, ""), [answer]) is is_found


def test_a_server_that_always_sends_so_is_seen() -> None:
    """The last reply counts, and the guards see it; without any time it is an error at once."""
    work = Asked("itl", 8, 0, 1, " ".join("word" for _ in range(400)))
    assert Late(IN_BURSTS, 9).serve(work).requests == (IN_BURSTS.facts | {"lag_ns": ANY},)
    with pytest.raises(RefusalError, match="all 9 tokens came at once"):
        Late(AT_ONCE, 9).serve(work)


@pytest.mark.parametrize(
    ("answer", "is_shorter"),
    [
        (reply(0, (1, None), n=3), False),
        (reply(0, (1, None), n=2), True),
        (reply(0, (1, None), finish="length"), False),
        (reply(0, (1, None), finish="stop"), True),
        (reply(0, n=3), True),
    ],
)
def test_a_reply_that_ended_early_is_known(answer: TimedReply, *, is_shorter: bool) -> None:
    """By the server's count, or by the reason where it gives none; without output it is nothing."""
    assert answer.is_shorter(3) is is_shorter
    if not is_shorter:
        assert answer.counted(3).n_output == 3


def test_what_a_server_drafted_is_said() -> None:
    """Speculation on the server is part of the run record."""
    plain = reply(0, (1, None), n=1)
    timings: dict[str, float] = {"draft_n": 40, "draft_n_accepted": 30}
    drafted = replace(plain, reply=replace(plain.reply, timings=timings))
    assert plain.drafted is None
    assert drafted.drafted == "30 of 40 drafted tokens accepted"
