"""Times of repeated runs and new ones, on an engine whose times are scripted."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat
from typing import Any, cast

import pytest

from pytest_asperf.engine_process import ContextFacts, RawRun, RunRemains, Worker
from pytest_asperf.measure import timed_work
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


def _run(elapsed_ns: int) -> RawRun:
    context = cast("ContextFacts", None)
    return RawRun(32, elapsed_ns, (), context, 0, call_ns=elapsed_ns)


@pytest.mark.parametrize(
    ("n", "again_ms", "new_ms", "is_found"),
    [
        (32, repeat(4), repeat(4), False),
        # A busy machine: the new ones alone wait for a core five times, and then either may.
        (32, chain([4] * 12, cycle([4, 8.1])), chain([8.1] * 5, cycle([8.1, 4])), False),
        (32, repeat(0.1), repeat(4), True),
        # A stall in one of three does not hide repeated results.
        (32, cycle([0.1, 0.1, 3]), repeat(8), True),
        # All of a text is timed: a third of it is kept, and the first run is slow by chance.
        (64, repeat(6.6), repeat(10), True),
        (64, chain([30], repeat(6.6)), cycle([10, 11]), True),
        (64, cycle([10, 14]), chain([14] * 9, cycle([12, 10])), False),
    ],
)
def test_new_tokens_are_as_fast_as_repeated_ones(
    n: int, again_ms: Iterator[float], new_ms: Iterator[float], *, is_found: bool
) -> None:
    """A scheduler's slice slows one of both at a time; a result that is repeated is always fast."""
    tokens = list(range(n))

    def time(asked: Sequence[int]) -> RawRun:
        return _run(int(next(again_ms if list(asked) == tokens else new_ms) * _MS))

    call = TimedCall(cast("Worker", _Shown()), "m", tokens, 0, time)
    examined = call.examine(_run(int(next(again_ms) * _MS)), random.Random(1))  # noqa: S311
    assert examined is not None
    found = [finding.found for finding in examined.findings]
    assert any("begins with other tokens" in one for one in found) == is_found, found


@pytest.mark.parametrize(
    ("call_ms", "waited_ms", "is_found"),
    [
        (77, repeat(65), False),
        (77, repeat(0), True),
        # 30 ms of work are not timed, and some calls wait while they are timed.
        (42, cycle([60, 0, 5]), True),
    ],
)
def test_a_call_that_waits_for_a_core_left_no_work_out(
    monkeypatch: pytest.MonkeyPatch, call_ms: int, waited_ms: Iterator[int], *, is_found: bool
) -> None:
    """While four busy loops ran, runs of 12 ms were returned after 77 ms, six times in a row."""
    waited_ns = (waited * _MS for wait in waited_ms for waited in (0, wait))
    monkeypatch.setattr(timed_work, "core_wait_ns", lambda _pid: next(waited_ns))
    run = replace(_run(12 * _MS), step_ns=(12 * _MS // 32,) * 32, call_ns=call_ms * _MS)
    call = TimedCall(cast("Worker", _Shown()), "m", range(32), 0, lambda _: run)
    examined = call.examine(run, random.Random(1))  # noqa: S311
    assert examined is not None
    found = [finding.found for finding in examined.findings]
    assert any("its caller waited for" in one for one in found) == is_found, found
