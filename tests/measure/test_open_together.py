"""Both variants of a comparison are started at once, and ended in any case."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure import running_build
from pytest_asperf.measure.running_build import open_together


class _Worker:
    def __init__(self, closed: list[str], name: str) -> None:
        self._closed = closed
        self._name = name

    def close(self) -> None:
        """Note the end."""
        self._closed.append(self._name)


class _Arm:
    def __init__(self, closed: list[str], name: str) -> None:
        self.worker = _Worker(closed, name)

    def __exit__(self, *error: object) -> None:
        self.worker.close()


def test_arms_wait_for_one_another_and_are_ended_by_the_stack() -> None:
    """Each meets the other while it starts, which one after the other they could not."""
    closed: list[str] = []
    meeting = threading.Barrier(2, timeout=120)

    def opening(name: str) -> Any:
        meeting.wait()
        return _Arm(closed, name)

    with ExitStack() as stack:
        arms = open_together(stack, [lambda: opening("base"), lambda: opening("candidate")])
        assert len(arms) == 2
        assert closed == []
    assert sorted(closed) == ["base", "candidate"]


def test_what_was_started_is_ended_where_the_other_fails() -> None:
    """The error is the one that was raised."""
    closed: list[str] = []

    def failing() -> Any:
        raise MeasurementError("broken", why="w", remedy="r")

    with ExitStack() as stack, pytest.raises(MeasurementError, match="broken"):
        open_together(stack, [lambda: _Arm(closed, "base"), failing])
    assert closed == ["base"]


def test_an_interruption_does_not_wait_for_what_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended once it is there."""
    closed: list[str] = []
    go_on = threading.Event()
    ended = threading.Event()

    def slow() -> Any:
        go_on.wait(20)
        arm = _Arm(closed, "slow")
        monkeypatch.setattr(arm.worker, "close", ended.set)
        return arm

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running_build, "wait", interrupted)
    with ExitStack() as stack, pytest.raises(KeyboardInterrupt):
        open_together(stack, [slow])
    go_on.set()
    assert ended.wait(20)
