"""Loads of a model until its first output token, in repetitions or in pairs of two variants."""

from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.stats.estimate import memory_text, number_text, percent_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import ContextFacts, RawRun
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.experiment import Arm, MachineLease
from pytest_asperf.measure.results import Provenance, ThroughputResult, TimedLoad
from pytest_asperf.measure.running_arms import MODEL, SERVED_SETTLING, ArmCache, RunningArm
from pytest_asperf.measure.timed_work import time_workload
from pytest_asperf.measure.validity import require_sound
from pytest_asperf.modelfiles.disk_use import cached_share, drop, files_of

#: A load ends with one step: mapped weights are read by the first step, and not before.
_FIRST: Final = Workload("ttft", 8)
#: A file of which less is cached has to be read from the disk.
_WARM: Final = 0.99


class LoadingArm(RunningArm):
    """A variant whose runs are loads: `load`, `load@cold` or `reload`."""

    def __init__(
        self, arm: Arm, lease: MachineLease, workload: Workload, cache: ArmCache | None = None
    ) -> None:
        self._workload = workload
        self._files = files_of([arm.model.path])
        self._size_bytes = arm.model.size_bytes
        self._shares = cache.loaded_from if cache else []
        super().__init__(arm, lease)
        if workload.kind == "reload" and self.loaded.served is not None:
            self.close()
            raise UnfitError(
                "a server is started for each load",
                why="nothing of a load is left for the next one",
                remedy="measure `load`",
            )

    @property
    def loads_each_run(self) -> bool:
        """True if each run is of a process of its own."""
        return self._workload.kind != "reload"

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun:  # noqa: ARG002  # all alike
        """Load the model, and time that until the first output token."""
        if self._workload.kind == "load@cold":
            drop(self._files)
        share = cached_share(self._files)
        if self._workload.kind != "load@cold" and share is not None and share < _WARM:
            self._load()  # as after a variant that empties the cache
            share = cached_share(self._files)
        self._load()
        self._shares.append(share)
        return self._until_first_token()

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Nothing: the process has loaded the model once."""

    def settle(self, workload: Workload, turn: int, parts: int) -> None:
        """Do nothing: a load shares only the file with the other variant."""

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The run record, with the kind of load and the cached share before each."""
        ran = super().ran(context)
        return replace(ran, made=(*ran.made, ("load", self._text()))) if self._shares else ran

    def _load(self) -> None:
        again = self.reload if self._workload.kind == "reload" else self.restart
        again(MODEL)

    def _until_first_token(self) -> RawRun:
        """The load that was just done, with the first token after it."""
        facts = self.loaded
        if facts.loads_each_run or facts.load_ns <= 1:
            raise UnfitError(
                f"{self.worker.build.engine} does not report the duration of a load",
                why="a server by URL is loaded already, and a program loads within each run",
                remedy="measure it on llama_cpp, mlx, llama_server or mlx_server",
            )
        workload = _FIRST if facts.served is None else SERVED_SETTLING
        timed = time_workload(self.worker, MODEL, super().fed(workload), workload)
        first = require_sound("the first token after a load", timed, workload)
        parts = facts.load_ns, first.elapsed_ns
        return replace(first, n_tokens=1, elapsed_ns=sum(parts), step_ns=parts, requests=())

    def _text(self) -> str:
        """The kind of load, and the cached share of the file."""
        kind = self._workload.kind
        which = "again in one process" if kind == "reload" else "first of a fresh process"
        is_cold = kind == "load@cold"
        how, bound, farthest = ("cold", "at most", max) if is_cold else ("warm", "at least", min)
        known = [share for share in self._shares if share is not None]
        cached = f"{bound} {percent_text(farthest(known))}" if known else "an unknown share"
        size = memory_text(self._size_bytes)
        return f"{which}, file cache {how}: {cached} of {size} in it before each"


@dataclass(frozen=True, slots=True)
class LoadExperiment:
    """Times loads in the lease's only variant, after one that is not timed.

    The workload is `load`, `load@cold` or `reload`.
    """

    workload: Workload

    def run(self, lease: MachineLease) -> ThroughputResult:
        """Measure; an UnfitError if the engine does not report the duration of a load."""
        ((arm,),) = lease.sides
        loads: list[TimedLoad] = []
        with LoadingArm(arm, lease, self.workload) as loading:
            for _ in range(lease.plan.repetitions):
                run = loading.run(self.workload, len(loads), 1)
                loads.append(TimedLoad(None, (run,)))
                lease.progress(self.workload.name, len(loads), lease.plan.repetitions)
            ran = loading.ran(run.context)
        first_ms = number_text(max(load.runs[0].step_ns[1] for load in loads) / 1e6)
        ran = replace(ran, made=(*ran.made, ("first token", f"at most {first_ms} ms of each load")))
        return ThroughputResult(self.workload, tuple(loads), None, ran, lease.watch.seen())
