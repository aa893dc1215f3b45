"""What an arm is asked to decode for each part of a generation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_asperf.config.workload import Workload, parse_workload
from pytest_asperf.engine_process.worker import RawRun
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.running_arms import RunningArm
from pytest_asperf.measure.throughput import fed_with
from tests.engine_facts import loaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.engine_process import Worker
    from pytest_asperf.measure.corpus import Corpus


class _Worker:
    """An engine whose step takes as many ns as its position in the text."""

    def __init__(self, cannot: dict[str, str]) -> None:
        self._facts = SimpleNamespace(cannot=cannot)

    def describe(self) -> Any:
        """What it cannot do."""
        return self._facts

    def generate(self, name: str, tokens: Sequence[int], depth: int, n_ctx: int) -> RawRun:
        """Give the positions after the depth."""
        assert (name, n_ctx) == ("model", 48)
        steps_ns = () if self._facts.cannot else tuple(range(depth, len(tokens)))
        context: Any = None
        return RawRun(len(tokens) - depth, len(tokens) - depth, steps_ns, context, 0)


def arm(cannot: dict[str, str] | None = None) -> RunningArm:
    """An arm that has 48 tokens, without a process."""
    running = object.__new__(RunningArm)
    running.worker = _Worker(cannot or {})  # type: ignore[assignment]  # of this file
    running._arm = SimpleNamespace(name="arm", workload=None)  # type: ignore[assignment]
    running._fed = {TG: list(range(48))}
    return running


TG = Workload("tg", 32, depth=16)


def timed(running: RunningArm, turn: int) -> RawRun:
    """A part of a run, which is timed and not metered."""
    run = running.run(TG, turn, 4)
    assert isinstance(run, RawRun)
    return run


def test_every_token_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens before a part are decoded again and not counted."""
    monkeypatch.setattr("pytest_asperf.measure.running_arms.require_sound", lambda _, run, __: run)
    runs = [timed(arm(), turn) for turn in range(5)]
    assert [run.step_ns for run in runs[:4]] == [tuple(range(n, n + 8)) for n in (16, 24, 32, 40)]
    assert [run.elapsed_ns for run in runs] == [sum(run.step_ns) for run in runs]
    assert {run.n_tokens for run in runs} == {8}
    assert runs[4] == runs[0]


def test_an_engine_that_times_no_steps_begins_at_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it decodes cannot be told from what is counted."""
    monkeypatch.setattr("pytest_asperf.measure.running_arms.require_sound", lambda _, run, __: run)
    run = arm({"step_ns": "times whole runs"}).run(TG, 1, 4)
    assert (run.n_tokens, run.elapsed_ns) == (8, 8)


@pytest.mark.parametrize(
    ("name", "says"), [("tg8@c2", "has 2 users"), ("ttft8@warm", "asks for a cached prompt")]
)
def test_what_only_a_server_can_do_is_refused_of_a_library(name: str, says: str) -> None:
    """Several users and a warm prompt need a server."""
    worker = cast("Worker", SimpleNamespace(build=SimpleNamespace(engine="llama_cpp")))
    workload = parse_workload(name, where="test")
    with pytest.raises(UnfitError, match=f"{says}, and llama_cpp is not a server"):
        fed_with(worker, "m", cast("Corpus", None), workload, loaded())
