"""PP, TG and loads of one build's models: repetitions, in rounds of random order.

Compared models are measured in alternation: drift that hits all of them is not a difference. If
loading is cheap, each repetition starts from a fresh load: two loads of one model can differ by
more than two runs of one load (by the place of its memory, by the threads that run it), and an
interval covers only variation that occurred during its measurement.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Final

from pytest_asperf.config.progress import SoFar
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import LoadedFacts, RawRun, Worker
from pytest_asperf.hardware.watch import MachineWatch
from pytest_asperf.measure.experiment import Arm, MachineLease, OfAnyModel, SharedProcess
from pytest_asperf.measure.feeding import Fed, ServedText, fed_with
from pytest_asperf.measure.lone_server import ExaminedServer, TimedServer
from pytest_asperf.measure.results import ThroughputResult, TimedLoad
from pytest_asperf.measure.running_build import RunningBuild, kept_build
from pytest_asperf.measure.timed_work import ExaminedRun, answer_before, time_workload, timed_call
from pytest_asperf.measure.validity import require_sound

#: Steps of a TG warm-up: enough to touch all weights and to compile all kernels.
_WARM_UP_STEPS: Final = 8

#: A GPU is warm where two runs in a row differ by no more than this share, or one is this long.
_STEADY: Final = 0.05
_LONG_NS: Final = 300_000_000
_MOST_WARM_UPS: Final = 10

#: A load that is shorter than this share of the measurement after it is repeated each time.
_CHEAP_LOAD: Final = 0.5

#: Loads shorter than that share of this are cheap however short the run.
_SHORTEST_NS: Final = 300_000_000


def load_is_cheap(load_ns: float, measured_ns: float) -> bool:
    """True if a model may be loaded again each time something is measured on it."""
    return load_ns < _CHEAP_LOAD * max(measured_ns, _SHORTEST_NS)


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """The loads of a model and their runs, and the result of examining one of the runs.

    `examined` is None if the engine does not show its state after a run.
    """

    loads: tuple[TimedLoad, ...]
    examined: ExaminedRun | ExaminedServer | None


@dataclass(frozen=True)
class ThroughputExperiment(SharedProcess, OfAnyModel):
    """Times one workload on every model of the lease's only variant."""

    workload: Workload

    @property
    def timed(self) -> tuple[Workload, ...]:
        """The one workload."""
        return (self.workload,)

    def run(self, lease: MachineLease) -> dict[ModelRef, ThroughputResult]:
        """Time the plan's repetitions; an UnfitError if a model's context is too short."""
        (side,) = lease.sides
        arms = {arm.name: arm for arm in side}
        workload, build = self.workload, kept_build(lease, arms)
        for name in arms:
            build.require_context(name, workload.room, workload.name)
        label = f"{workload.name} {', '.join(arms)}"

        def progress(runs: Mapping[str, Sequence[RawRun]]) -> None:
            _show_rates(lease, label, workload, runs)

        fed = {
            name: fed_with(build.worker, name, lease.corpus_of(arm), workload, build.facts(name))
            for name, arm in arms.items()
        }
        plan = lease.plan
        with MachineWatch() as watch:  # while it is timed: a busy host does no harm to a load
            timed = time_rounds(
                build,
                fed,
                workload,
                repetitions=plan.repetitions,
                seed=plan.seed,
                progress=progress,
            )
            watched = watch.seen()
        return {
            arm.ref: replace(_throughput(build, arm, workload, timed[name]), watched=watched)
            for name, arm in arms.items()
        }


def _throughput(
    build: RunningBuild, arm: Arm, workload: Workload, timed: TimedRuns
) -> ThroughputResult:
    loads = timed.loads
    for run in (run for load in loads for run in load.every):
        require_sound(f"{workload.name} {arm.name}", run, workload)
    context = loads[-1].runs[-1].context
    ran = build.proof(arm.name, context)
    # The cache grows under the run: on average half of its own tokens are in it.
    depth = workload.depth + workload.n_tokens // 2
    n_bytes = arm.model.bytes_per_token(depth, ran.loaded, context)
    return ThroughputResult(workload, loads, n_bytes, ran, examined=timed.examined)


def _show_rates(
    lease: MachineLease, label: str, workload: Workload, runs: Mapping[str, Sequence[RawRun]]
) -> None:
    """Show how far a workload is, and the rate if there is one model."""
    done, total = sum(map(len, runs.values())), lease.plan.repetitions * len(runs)
    rates = [1e9 * run.n_tokens / max(1, run.elapsed_ns) for of in runs.values() for run in of]
    is_shown = done and len(runs) == 1 and workload.is_rate
    figure = f"{median(rates):.3g} tok/s" if is_shown else ""
    lease.progress(label, done, total, SoFar(figure, "runs"))


def time_rounds(
    build: RunningBuild,
    fed: Mapping[str, Fed],
    workload: Workload,
    *,
    repetitions: int,
    seed: int,
    progress: Callable[[Mapping[str, Sequence[RawRun]]], None],
) -> dict[str, TimedRuns]:
    """Time one workload on every loaded model, in rounds of seeded order.

    Each round has a fresh load of each model if that is cheap for all of them, or if the engine
    cannot do otherwise. So each model has one load for each repetition, or one for all. `progress`
    gets the runs so far. A run of each model is examined: a random one if the next run has a load
    of its own, otherwise the last.
    """
    # The order must be repeatable from the logged seed, not unguessable.
    order = random.Random(seed)  # noqa: S311
    worker, names = build.worker, list(fed)
    # An engine that loads and warms up for each run is left alone; it shares the rounds' order.
    kept = [name for name in names if not build.facts(name).loads_each_run]
    warm_ups: dict[str, list[RawRun]] = {name: [] for name in names}
    reloads = True
    for name in kept:
        began_ns = time.perf_counter_ns()
        run = _warm_up(worker, name, fed[name], workload, build.facts(name))
        # A load is not ready for its run before the context is made and filled to the depth.
        spent_ns = time.perf_counter_ns() - began_ns
        ready_ns = build.facts(name).load_ns + spent_ns - run.elapsed_ns
        reloads &= load_is_cheap(ready_ns, run.elapsed_ns / run.n_tokens * workload.n_tokens)
        warm_ups[name].append(run)
    runs: dict[str, list[RawRun]] = {name: [] for name in names}
    coin = random.Random(seed + 1)  # noqa: S311  # as above
    examined_after = coin.randrange(repetitions) if reloads else repetitions - 1
    examined: dict[str, ExaminedRun | ExaminedServer | None] = {}
    for done in range(repetitions):
        progress(runs)
        for name in order.sample(names, len(names)):
            if reloads and done and name in kept:
                build.reload(name)
                facts = build.facts(name)
                warm_ups[name].append(_warm_up(worker, name, fed[name], workload, facts))
            runs[name].append(time_workload(worker, name, fed[name], workload))
            if done == examined_after:
                run, call = runs[name][-1], timed_call(worker, name, fed[name], workload)
                if call is not None:
                    examined[name] = call.examine(run, coin)
                    continue
                again = partial(time_workload, worker, name, fed[name], workload)
                examined[name] = TimedServer(worker, name, again).examine(run, workload, coin)
    return {name: TimedRuns(_by_load(warm_ups[name], runs[name]), examined[name]) for name in names}


def _by_load(warm_ups: Sequence[RawRun], runs: Sequence[RawRun]) -> tuple[TimedLoad, ...]:
    if not warm_ups:
        return tuple(TimedLoad(None, (run,)) for run in runs)
    if len(warm_ups) == 1:
        return (TimedLoad(warm_ups[0], tuple(runs)),)
    return tuple(TimedLoad(w, (run,)) for w, run in zip(warm_ups, runs, strict=True))


def _warm_up(
    worker: Worker, name: str, tokens: Fed, workload: Workload, loaded: LoadedFacts
) -> RawRun:
    """The first run of a load, after which a GPU is run until it is steady.

    The requests before a workload come first.
    """
    answer_before(worker, name, tokens, workload)

    def time_it() -> RawRun:
        if isinstance(tokens, ServedText) or not workload.generates:
            return time_workload(worker, name, tokens, workload)
        first = tokens[: workload.depth + _WARM_UP_STEPS]
        return worker.generate(name, first, workload.depth, n_ctx=max(len(first), workload.room))

    return run_until_steady(time_it) if loaded.layers_offloaded else time_it()


def run_until_steady(time_it: Callable[[], RawRun]) -> RawRun:
    """The duration until a GPU is steady: its clocks rise, and kernels load."""
    first = run = time_it()
    for _ in range(_MOST_WARM_UPS - 1):
        if run.elapsed_ns > _LONG_NS:
            break
        previous, run = run, time_it()
        if abs(run.elapsed_ns / previous.elapsed_ns - 1) <= _STEADY:
            break
    return first
