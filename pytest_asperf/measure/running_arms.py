"""The arms of a comparison as they run: a process each, with what it loaded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from pytest_asperf.measure.ab_arms import require_ran
from pytest_asperf.measure.throughput import Fed, ServedText, fed_with, time_workload
from pytest_asperf.measure.validity import require_sound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from contextlib import ExitStack

    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import ContextFacts, LoadedFacts, RawRun, Worker
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.metered import MeteredRun
    from pytest_asperf.measure.results import Provenance

#: What the model is called inside an arm's process.
MODEL: Final = "model"
#: Tokens before a part that are decoded again, untimed: the caches hold what the other arm left
#: there, which costs 30 % in the first step and 3 % in the fifth (docs/benchmarks.md).
_SETTLING_TOKENS: Final = 4
#: Models up to this size are cheap to hold more than once, and their processes are kept.
SMALL_BYTES: Final = 2**28


class TimedArm(Protocol):
    """A running arm, as the pairs of a comparison see it."""

    @property
    def worker(self) -> Worker:
        """The process."""

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave the process to the next arm, or end it if anything failed."""

    @property
    def loaded(self) -> LoadedFacts:
        """What the last load resolved to."""

    def fed(self, workload: Workload) -> object:
        """The tokens or prompts of the workload, to compare between the arms."""

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun | MeteredRun:
        """Time one run, or one of its parts; the same turn is the same work in both arms."""

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Do what the first run of a context takes longer for, in the shape of a run."""

    def reload(self) -> float:
        """Load the model again; gives the time that took in seconds."""

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The proof of path, with what the last run's context resolved to.

        Raises:
            MeasurementError: the engine did something else than was asked for.
        """


Opened = TypeVar("Opened", bound="TimedArm | RunningArm")


def open_together(stack: ExitStack, open_arms: Sequence[Callable[[], Opened]]) -> list[Opened]:
    """Start arms at once, as nothing is timed yet; the stack ends them.

    Raises:
        EngineError: one could not be started; the others are ended too.
    """
    pool = ThreadPoolExecutor(len(open_arms))
    futures = [pool.submit(open_arm) for open_arm in open_arms]
    pool.shutdown(wait=False)
    try:
        wait(futures)
    except BaseException:  # as Ctrl-C, which is not to wait for a load
        for future in futures:
            future.add_done_callback(_end_arm)
        raise
    for future in futures:
        if not future.exception():
            stack.push(future.result().__exit__)
    return [future.result() for future in futures]


def _end_arm(opened: Future[Opened]) -> None:
    if not opened.exception():
        opened.result().worker.close()


class ArmProcess:
    """An arm's process, taken from those that are idle; a context manager.

    Args:
        arm: what runs.
        lease: has the idle processes, and the deadline of one call to the engine.

    Attributes:
        worker: the process.
    """

    def __init__(self, arm: Arm, lease: MachineLease) -> None:
        self._arm = arm
        self._idle_workers = lease.idle_workers
        self.worker = lease.idle_workers.take(arm.build.engine, lease.call_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave the process to the next arm, or end it if anything failed.

        One that held a large model ends: it may not get its memory back, and is started quickly
        beside the next load.
        """
        if kind is None and self._arm.model.size_bytes <= SMALL_BYTES:
            self._idle_workers.give_back(self.worker)
        else:
            self.worker.close()


class RunningArm(ArmProcess):
    """An arm's process, with the model loaded.

    Attributes:
        loaded: what the last load resolved to.
    """

    def __init__(self, arm: Arm, lease: MachineLease) -> None:
        self._corpus = lease.corpus
        self._energy_meter = lease.energy_meter
        self._fed: dict[Workload, Fed] = {}
        super().__init__(arm, lease)
        try:
            self.load()
        except BaseException:
            self.worker.close()
            raise

    def load(self) -> float:
        """Load the model; gives the time that took in seconds."""
        began = time.perf_counter()
        self.loaded = self.worker.load(MODEL, self._arm.model.path, self._arm.settings)
        elapsed_s = time.perf_counter() - began
        self.ran(None)
        return elapsed_s

    def reload(self) -> float:
        """Load the model again; gives the time that took in seconds."""
        self.worker.unload(MODEL)
        return self.load()

    def fed(self, workload: Workload) -> Fed:
        """The tokens that a workload is fed with, or the text of a server's prompts."""
        workload = self._arm.workload or workload
        if workload not in self._fed:
            args = self.worker, MODEL, self._corpus, workload, self.loaded
            self._fed[workload] = fed_with(*args)
        return self._fed[workload]

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun | MeteredRun:
        """Time one run of a workload; of a generation in parts the next one, in turn.

        Of one whose energy is judged, as many runs as its counters need.
        """
        workload = self._arm.workload or workload
        if workload.metered:
            return self._energy_meter().metered(
                f"{workload.name} {self._arm.name}",
                lambda: self._timed(workload, turn, 1),
                on_gpu=self.loaded.layers_offloaded > 0,
            )
        return self._timed(workload, turn, parts)

    def _timed(self, workload: Workload, turn: int, parts: int) -> RawRun:
        tokens = self.fed(workload)
        if parts == 1 or isinstance(tokens, ServedText):
            run = time_workload(self.worker, MODEL, tokens, workload)
        else:
            n_tokens = workload.n_tokens // parts
            first = workload.depth + turn % parts * n_tokens
            run = self._part(tokens[: first + n_tokens], first, workload.n_ctx)
        return require_sound(f"{workload.name} {self._arm.name}", run, workload)

    def _part(self, tokens: Sequence[int], first: int, n_ctx: int) -> RawRun:
        """Time a part from its first token on, after a few before it."""
        times_steps = "step_ns" not in self.worker.describe().cannot
        settling = min(first, _SETTLING_TOKENS) if times_steps else 0
        run = self.worker.generate(MODEL, tokens, first - settling, n_ctx=n_ctx)
        if not settling:
            return run
        steps_ns = run.step_ns[settling:]
        return replace(run, n_tokens=len(steps_ns), step_ns=steps_ns, elapsed_ns=sum(steps_ns))

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Run the workload, or its part."""
        self._timed(self._arm.workload or workload, turn, parts)

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The proof of path, with what the last run's context resolved to.

        Raises:
            MeasurementError: the engine did something else than was asked for.
        """
        return require_ran(self._arm, self.worker.describe(), self.loaded, context)
