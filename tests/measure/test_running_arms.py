"""A variant's request for each part of a generation, and requests to several variants."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_asperf.config.workload import Workload, parse_workload
from pytest_asperf.engine_process import Worker
from pytest_asperf.engine_process.worker import RawRun
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.feeding import Corpus, fed_with
from pytest_asperf.measure.running_arms import MODEL, RunningArm, ask_each
from tests.engine_facts import loaded


class _Worker:
    """An engine that notes which positions of a text it decodes."""

    def __init__(self) -> None:
        self.decoded: list[range] = []

    def generate(
        self, name: str, tokens: Sequence[int], depth: int, n_ctx: int, sampled: str = ""
    ) -> RawRun:
        """Decode the positions after the depth."""
        assert (name, n_ctx, sampled) == ("model", 48, "")
        self.decoded.append(range(depth, len(tokens)))
        context: Any = None
        return RawRun(len(tokens) - depth, len(tokens) - depth, (), context, 0)

    prompt = generate


TG, PP, TG0 = Workload("tg", 32, depth=16), Workload("pp", 32, depth=16), Workload("tg", 48)


def arm() -> tuple[RunningArm, _Worker]:
    """A variant that has 48 tokens, without a process."""
    running, worker = object.__new__(RunningArm), _Worker()
    running.worker = worker  # type: ignore[assignment]  # of this file
    running.arm = SimpleNamespace(name="arm", workload=None)  # type: ignore[assignment]
    running._fed = {workload: list(range(48)) for workload in (TG, PP, TG0)}
    return running, worker


def test_every_token_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a run follow each other, and begin again after the last."""
    monkeypatch.setattr("pytest_asperf.measure.running_arms.require_sound", lambda _, run, __: run)
    running, worker = arm()
    for turn in range(5):
        running.run(TG, turn, 4)
    assert worker.decoded == [range(n, n + 8) for n in (16, 24, 32, 40, 16)]


@pytest.mark.parametrize(
    ("workload", "turn", "parts", "positions"),
    [
        (TG, 1, 4, range(20, 24)),
        (TG, 0, 1, range(12, 16)),
        (PP, 3, 1, range(12, 16)),
        (TG0, 0, 4, range(4)),
    ],
)
def test_four_tokens_before_a_run_are_decoded_untimed(
    workload: Workload, turn: int, parts: int, positions: range
) -> None:
    """At the beginning of a text they are its first ones, which the run decodes again."""
    running, worker = arm()
    running.settle(workload, turn, parts)
    assert worker.decoded == [positions]


def test_a_program_of_its_own_for_each_run_has_answered_nothing() -> None:
    """Its process ends with the request, so no run comes after others."""
    worker = cast("Worker", SimpleNamespace(build=SimpleNamespace(engine="llama_tools")))
    workload, facts = parse_workload("tg8@after4", where="test"), loaded(loads_each_run=True)
    with pytest.raises(UnfitError, match="llama_tools starts a process for each run"):
        fed_with(worker, "m", cast("Corpus", None), workload, facts)


@pytest.mark.parametrize(
    ("name", "says"), [("tg8@c2", "has 2 users"), ("ttft8@warm", "needs a cached prompt")]
)
def test_what_only_a_server_can_do_is_refused_of_a_library(name: str, says: str) -> None:
    """Several users and a warm prompt need a server."""
    worker = cast("Worker", SimpleNamespace(build=SimpleNamespace(engine="llama_cpp")))
    workload = parse_workload(name, where="test")
    with pytest.raises(UnfitError, match=f"{says}, and llama_cpp is not a server"):
        fed_with(worker, "m", cast("Corpus", None), workload, loaded())


def test_a_memory_that_cannot_drop_its_end_is_filled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tokens after a load are those before a run's context ends, as before each run."""
    monkeypatch.setattr("pytest_asperf.measure.running_arms.require_sound", lambda _, run, __: run)
    running, worker = arm()
    running.warm_up(TG, 0, 4)
    running.settle(TG, 0, 4)
    running.run(TG, 0, 4)
    assert worker.decoded == [range(12, 16), range(16, 24)] * 2


@pytest.mark.parametrize(
    ("threads", "offloaded", "most"), [(1, 0, 2), (2, 0, 1), (2, 9, 2)], ids=["fit", "wait", "gpu"]
)
def test_threads_without_cores_of_their_own_do_not_wait_for_each_other(
    threads: int, offloaded: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests overlap only if each thread of the processes has a core, or they use a GPU."""
    monkeypatch.setattr("pytest_asperf.measure.running_arms.n_usable_cores", lambda: 2)
    sides = [arm()[0] for _ in range(2)]
    for side in sides:
        side._loaded = {MODEL: loaded(threads=threads, layers_offloaded=offloaded)}
    both = threading.Barrier(2)

    def ask(_: RunningArm) -> bool:
        """True if the other request runs meanwhile."""
        try:
            both.wait(2)
        except threading.BrokenBarrierError:
            return False
        return True

    assert ask_each(sides, ask) == [most == 2] * 2
