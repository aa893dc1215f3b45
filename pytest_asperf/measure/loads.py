"""How long a model takes to load: first or again, from the disk or from the file cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import memory_text, number_text, percent_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import UnfitError
from pytest_asperf.hardware.file_cache import cached_share, drop
from pytest_asperf.measure.results import ThroughputResult
from pytest_asperf.measure.running_arms import MODEL, SERVED_SETTLING, RunningArm
from pytest_asperf.measure.throughput import TimedLoad, time_workload
from pytest_asperf.measure.validity import require_sound
from pytest_asperf.modelfiles.disk_use import files_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_asperf.engine_process import RawRun
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
        files = files_of([arm.model.path])
        with RunningArm(arm, lease) as running:
            ran = running.ran(_timed(running).context)
            if self.workload.kind == "reload" and running.loaded.served is not None:
                raise UnfitError(
                    "a server is started for each load",
                    why="nothing of a load is left for the next one",
                    remedy='measure latency("load")',
                )
        runs, shares = [], []
        for run, share in self._loads(lease, files):
            runs.append(run)
            shares.append(share)
            lease.progress(self.workload.name, len(runs), self.repetitions)
        text = self._text(memory_text(arm.model.size_bytes), shares, runs)
        ran = replace(ran, made=(*ran.made, ("load", text)))
        loads = tuple(TimedLoad(None, (run,)) for run in runs)
        return ThroughputResult(self.workload, loads, None, ran, lease.watch.seen())

    def _loads(
        self, lease: MachineLease, files: list[Path]
    ) -> Iterator[tuple[RawRun, float | None]]:
        """Each load, and the share of its files that was in the file cache before it."""
        ((arm,),) = lease.sides
        if self.workload.kind == "reload":
            with RunningArm(arm, lease) as running:
                for _ in range(self.repetitions):
                    share = cached_share(files)
                    running.reload()
                    yield _timed(running), share
            return
        for _ in range(self.repetitions):
            if self.workload.kind == "load@cold":
                drop(files)
            share = cached_share(files)
            with RunningArm(arm, lease) as running:
                yield _timed(running), share

    def _text(self, size: str, shares: list[float | None], runs: list[RawRun]) -> str:
        """Which load it was, how much was cached, and what the first token took."""
        again, is_cold = self.workload.kind == "reload", self.workload.kind == "load@cold"
        which = "again in one process" if again else "first of a fresh process"
        how, bound, farthest = ("cold", "at most", max) if is_cold else ("warm", "at least", min)
        known = [share for share in shares if share is not None]
        cached = f"{bound} {percent_text(farthest(known))}" if known else "an unknown share"
        first_ms = number_text(max(run.step_ns[1] for run in runs) / 1e6)
        return (
            f"{which}, file cache {how}: {cached} of {size} in it before each; at most {first_ms} "
            "ms are the first token"
        )


def _timed(running: RunningArm) -> RawRun:
    """The load that was just done, with the first token after it."""
    facts = running.loaded
    if facts.loads_each_run or facts.load_ns <= 1:
        raise UnfitError(
            f"{running.worker.build.engine} does not say how long a load takes",
            why="a server by URL is loaded already, and a program loads within each of its runs",
            remedy="measure it on llama_cpp, mlx, llama_server or mlx_server",
        )
    workload = _FIRST if facts.served is None else SERVED_SETTLING
    timed = time_workload(running.worker, MODEL, running.fed(workload), workload)
    first = require_sound("the first token after a load", timed, workload)
    parts = facts.load_ns, first.elapsed_ns
    return replace(first, n_tokens=1, elapsed_ns=sum(parts), step_ns=parts, requests=())
