"""Times of repeated runs and new ones, on an engine whose times are scripted."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat
from typing import Any, cast

import pytest

from pytest_asperf.engine_process import ContextFacts, RawRun, RunRemains, Worker
from pytest_asperf.measure.timed_work import TimedCall

_MS = 1_000_000
_ROW = (-1.0, -2.0)


class _Shown:
    """Shows the same logits for any position, before and after."""

    pid = 0

    def revisit(self, _name: str, positions: Sequence[int]) -> RunRemains:
        return RunRemains(32, dict.fromkeys(positions, _ROW))

    def recompute(self, _name: str, _tokens: object, positions: Sequence[int]) -> dict[int, Any]:
        return dict.fromkeys(positions, _ROW)


def _run(elapsed_ms: float, waited_ms: float = 0.0) -> RawRun:
    context, elapsed_ns = cast("ContextFacts", None), round(elapsed_ms * _MS)
    waited_ns = round(waited_ms * _MS)
    return RawRun(32, elapsed_ns, (), context, 0, call_ns=elapsed_ns, waited_ns=waited_ns)


def _found(call: TimedCall, run: RawRun) -> list[str]:
    examined = call.examine(run, random.Random(1))  # noqa: S311  # replays
    assert examined is not None
    return [finding.found for finding in examined.findings]


@pytest.mark.parametrize(
    ("n", "again", "new_ms", "is_found"),
    [
        (32, repeat((4, 0)), repeat(4), False),
        # A busy machine: the new ones alone wait for a core five times, and then either may.
        (
            32,
            chain([(4, 0)] * 12, cycle([(4, 0), (8.1, 0)])),
            chain([8.1] * 5, cycle([8.1, 4])),
            False,
        ),
        (32, repeat((0.1, 0)), repeat(4), True),
        # A stall in one of three does not hide repeated results, nor does a wait for a core.
        (32, cycle([(0.1, 0), (0.1, 0), (3, 0)]), repeat(8), True),
        (32, cycle([(0.1, 0), (0.1, 0), (5, 4.9)]), repeat(8), True),
        # All of a text is timed: a third of it is kept, and the first run is slow by chance.
        (64, repeat((6.6, 0)), repeat(10), True),
        (64, chain([(30, 0)], repeat((6.6, 0))), cycle([10, 11]), True),
        (64, cycle([(10, 0), (14, 0)]), chain([14] * 9, cycle([12, 10])), False),
        # A core has two speeds: the run and one repetition are faster than all new ones.
        (64, chain([(26, 0), (40, 0), (26, 0)], repeat((40, 0))), repeat(41), False),
        (64, cycle([(26, 0), (26, 0), (17, 0), (17, 0)]), cycle([40, 40, 27]), True),
        # Other work begins after the first of them, and slows all that follow.
        (64, chain([(80, 0)], cycle([(150, 0), (110, 0), (170, 0)])), cycle([150, 110]), False),
    ],
)
def test_new_tokens_are_as_fast_as_repeated_ones(
    n: int, again: Iterator[tuple[float, float]], new_ms: Iterator[float], *, is_found: bool
) -> None:
    """A scheduler's slice slows one of both at a time; a result that is repeated is always fast."""
    tokens = list(range(n))

    def time(asked: Sequence[int]) -> RawRun:
        return _run(*next(again)) if list(asked) == tokens else _run(next(new_ms))

    call = TimedCall(cast("Worker", _Shown()), "m", tokens, 0, time)
    found = _found(call, _run(*next(again)))
    assert any("begins with other tokens" in one for one in found) == is_found, found


@pytest.mark.parametrize(
    ("calls", "is_found"),
    [
        ([(12, 77, 65)], False),
        ([(12, 77, 0)], True),
        # 30 ms of work are not timed, and some calls wait after their timed part.
        ([(12, 102, 60), (12, 42, 0), (12, 47, 5)], True),
        # 3 ms of work are not timed, and some calls wait in their timed part.
        ([(5, 8, 4.9), (0.1, 3.1, 0)], True),
        ([(17, 18, 5)], False),
    ],
)
def test_a_call_that_waits_for_a_core_left_no_work_out(
    calls: Sequence[tuple[float, float, float]], *, is_found: bool
) -> None:
    """While four busy loops ran, runs of 12 ms were returned after 77 ms, six times in a row."""
    scripted = cycle(calls)

    def time(_: object) -> RawRun:
        timed_ms, call_ms, waited_ms = next(scripted)
        run = _run(timed_ms, waited_ms)
        steps_ns = (run.elapsed_ns // 32,) * 32
        return replace(run, step_ns=steps_ns, call_ns=round(call_ms * _MS))

    found = _found(TimedCall(cast("Worker", _Shown()), "m", range(32), 0, time), time(()))
    assert any("its caller waited for" in one for one in found) == is_found, found


def test_a_run_has_no_more_of_a_wait_than_its_call() -> None:
    """A scripted run of 512 ms, whose call has 1 ms, is as slow as others if the call waits."""
    scripted = cycle([(512, 1, 0.99), (512, 1, 0), (512, 1, 0.5)])

    def time(_: object) -> RawRun:
        timed_ms, call_ms, waited_ms = next(scripted)
        return replace(_run(timed_ms, waited_ms), call_ns=round(call_ms * _MS))

    found = _found(TimedCall(cast("Worker", _Shown()), "m", range(32), 0, time), time(()))
    assert not any("begins with other tokens" in one for one in found), found
