"""How long a model takes to load: first or again, from the disk or from the file cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import memory_text, number_text, percent_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import UnfitError
from pytest_asperf.hardware.file_cache import cached_share, drop
from pytest_asperf.measure.metered import MeteredRun
from pytest_asperf.measure.results import ThroughputResult
from pytest_asperf.measure.running_arms import RunningArm
from pytest_asperf.measure.throughput import TimedLoad
from pytest_asperf.modelfiles.disk_use import files_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_asperf.engine_process import RawRun
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.experiment import MachineLease

#: What follows a load: weights that are mapped are read by the first step, and not before.
_FIRST: Final = Workload("ttft", 8)


@dataclass(frozen=True, slots=True)
class LoadExperiment:
    """Times loads of the lease's one side, each until its first output token.

    Attributes:
        workload: `load`, `load@cold` or `reload`.
        repetitions: loads that are timed; one before them is not.
    """

    workload: Workload
    repetitions: int

    def run(self, lease: MachineLease) -> ThroughputResult:
        """Measure.

        Raises:
            ElsewhereError: the file cache cannot be emptied here.
            UnfitError: the engine does not say how long a load takes.
            EngineError: the engine died or refused.
        """
        ((arm,),) = lease.sides
        files = [path for path, _ in files_of([arm.model.path])]
        with RunningArm(arm, lease) as running:
            _timed(running, arm)
            ran = running.ran(running.run(_FIRST, 0, 1).context)
        runs, shares = [], []
        for run, share in self._loads(arm, lease, files):
            runs.append(run)
            shares.append(share)
            lease.progress(self.workload.name, len(runs), self.repetitions)
        made = (*ran.made, ("load", self._text(arm, runs, shares)))
        loads = tuple(TimedLoad(None, (run,)) for run in runs)
        ran, watched = replace(ran, made=made), lease.watch.seen()
        return ThroughputResult(self.workload, loads, None, ran, watched)

    def _loads(
        self, arm: Arm, lease: MachineLease, files: list[Path]
    ) -> Iterator[tuple[RawRun, float | None]]:
        """Each load, and the share of its files that was in the file cache before it."""
        if self.workload.kind == "reload":
            with RunningArm(arm, lease) as running:
                for _ in range(self.repetitions):
                    share = cached_share(files)
                    running.reload()
                    yield _timed(running, arm), share
            return
        for _ in range(self.repetitions):
            lease.idle_workers.close()
            if self.workload.kind == "load@cold":
                drop(files)
            share = cached_share(files)
            with RunningArm(arm, lease) as running:
                yield _timed(running, arm), share

    def _text(self, arm: Arm, runs: list[RawRun], shares: list[float | None]) -> str:
        """Which load it was, how much was cached, and what the first token took."""
        again = self.workload.kind == "reload"
        which = "again in one process" if again else "first of a fresh process"
        is_cold = self.workload.kind == "load@cold"
        known = [share for share in shares if share is not None]
        most, bound = ("at most", max) if is_cold else ("at least", min)
        cached = f"{most} {percent_text(bound(known))}" if known else "an unknown share"
        size, first_ms = memory_text(arm.model.size_bytes), max(run.step_ns[1] for run in runs)
        return (
            f"{which}, file cache {'cold' if is_cold else 'warm'}: {cached} of {size} in it before "
            f"each; at most {number_text(first_ms / 1e6)} ms are the first token"
        )


def _timed(running: RunningArm, arm: Arm) -> RawRun:
    """The load that was just done, with the first token after it."""
    facts = running.loaded
    if facts.loads_each_run or facts.load_ns <= 1:
        raise UnfitError(
            f"{arm.name}: {arm.build.engine.engine} does not say how long a load takes",
            why="a server by URL is loaded already, and a program loads within each of its runs",
            remedy="measure it on llama_cpp, mlx, llama_server or mlx_server",
        )
    first = running.run(_FIRST, 0, 1)
    if isinstance(first, MeteredRun):
        raise TypeError("a time was asked for, and no energy")
    parts = facts.load_ns, first.elapsed_ns
    return replace(first, n_tokens=1, elapsed_ns=sum(parts), step_ns=parts, requests=())
