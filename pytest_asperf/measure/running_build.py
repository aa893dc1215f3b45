"""A build as it runs: a process, and the models that are loaded in it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

from pytest_asperf.engine_process import ContextFacts, EngineBuild, LoadedFacts, Worker
from pytest_asperf.engine_process.facts import RemoteFacts
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.experiment import Arm, MachineLease
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.validity import require_path, require_unchanged


class RunningBuild:
    """A build's process, with one or several models by name; a context manager that ends it.

    `passes_on` is a folder through which processes of the build share filled caches.
    """

    def __init__(
        self, engine: EngineBuild, lease: MachineLease, passes_on: Path | None = None
    ) -> None:
        self._arms: dict[str, Arm] = {}
        self._loaded: dict[str, LoadedFacts] = {}
        self._ran: dict[str, Provenance] = {}
        self.worker = Worker(engine, call_timeout_s=lease.plan.call_timeout_s)  #: the process
        if passes_on is not None:
            with self.ended_on_error():
                self.worker.share(passes_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.worker.close()

    @contextmanager
    def ended_on_error(self) -> Iterator[None]:
        """End the process if the block raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @property
    def is_empty(self) -> bool:
        """True if no model is loaded."""
        return not self._arms

    def holds(self, arms: Mapping[str, Arm]) -> bool:
        """True if exactly these models are loaded under these names."""
        return self._arms.keys() == arms.keys() and all(
            self._has(name, arm) for name, arm in arms.items()
        )

    def hold(self, arms: Mapping[str, Arm]) -> Self:
        """Have exactly these models loaded: free others, and load missing ones."""
        for name in list(self._arms):
            if name not in arms or not self._has(name, arms[name]):
                self.unload(name)
        for name, arm in arms.items():
            if name not in self._arms:
                self.load(name, arm)
        return self

    def _has(self, name: str, arm: Arm) -> bool:
        # Not by the name: files in two folders may share one, and settings differ by marker.
        known = self._arms.get(name)
        return known is not None and (known.model.ref, known.model.sha256, known.settings) == (
            arm.model.ref,
            arm.model.sha256,
            arm.settings,
        )

    def load(self, name: str, arm: Arm) -> float:
        """Load a model; returns the duration in seconds. MeasurementError if not as requested."""
        began = time.perf_counter()
        self._loaded[name] = self.worker.load(name, arm.model.path, arm.settings)
        elapsed_s = time.perf_counter() - began
        self._arms[name] = arm
        self.proof(name, None)  # a wrong run record makes measuring pointless
        return elapsed_s

    def unload(self, name: str) -> RemoteFacts | None:
        """Free a model; the link to the machine that computed it then, if that was another."""
        del self._arms[name], self._loaded[name]
        self._ran.pop(name, None)
        return self.worker.unload(name)

    def reload(self, name: str) -> float:
        """Load a model again; returns the duration in seconds."""
        arm = self._arms[name]
        self.unload(name)
        return self.load(name, arm)

    def restart(self, name: str) -> None:
        """Load the one model in a new process, which replaces the present one."""
        self._ran.clear()
        self.worker = self.worker.successor()
        self.load(name, self._arms[name])

    def note_links(self) -> None:
        """Free every model, and note how fast the link to another machine was at the end."""
        arms, loaded = dict(self._arms), dict(self._loaded)
        for name, arm in arms.items():
            self._loaded[name] = loaded[name].with_link_after(self.unload(name))
            self._arms[name] = arm

    def facts(self, name: str) -> LoadedFacts:
        """The resolved facts of a model's last load."""
        return self._loaded[name]

    def begins_with_bos(self, name: str) -> bool | None:
        """True if texts begin with BOS; a library that does not report it is given an empty one."""
        loaded = self._loaded[name]
        if loaded.add_bos is None and loaded.served is None and not loaded.loads_each_run:
            return bool(self.worker.tokenize(name, ""))
        return loaded.add_bos

    def proof(self, name: str, context: ContextFacts | None) -> Provenance:
        """The run record of a model in the last run's context, if it matches the request.

        Raises:
            MeasurementError: the engine did not run as requested, or the model's files have
                changed.
        """
        require_unchanged(self._arms[name].model)
        known = self._ran.get(name)
        if known is None or known.context is not context:
            ran = replace(known, context=context) if known else self._resolved(name, context)
            known = self._ran[name] = require_path(ran)
        return known

    def proofs(self, contexts: Mapping[str, ContextFacts]) -> tuple[Provenance, ...]:
        """The run record of each model, by the contexts that there are."""
        return tuple(self.proof(name, contexts.get(name)) for name in self._arms)

    def _resolved(self, name: str, context: ContextFacts | None) -> Provenance:
        arm = self._arms[name]
        model = arm.model
        return Provenance(
            arm.name,
            model.path,
            model.sha256,
            self.worker.describe(),
            self._loaded[name],
            context,
            arm.settings,
            (*model.made_rows(), *arm.build.rows()),
            model.title,
            model.ref,
            arm.build_name,
        )

    def require_context(self, name: str, n_ctx: int, what: str) -> None:
        """Reject a context that is longer than a model's training context."""
        n_ctx_train = self._loaded[name].n_ctx_train
        if n_ctx > n_ctx_train:
            raise UnfitError(
                f"{what} needs a context of {n_ctx} tokens, and {self._arms[name].ref.label} was "
                f"trained on {n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy=f"stay within {n_ctx_train} tokens, depth included, or use another model",
            )


def kept_process(lease: MachineLease, arms: Mapping[str, Arm]) -> RunningBuild:
    """The process that has exactly these models, if an earlier experiment left it, or an empty one.

    The engine listed its devices before a model used memory on them.
    """
    engine = next(iter(arms.values())).build.engine

    def start() -> RunningBuild:
        started = RunningBuild(engine, lease)
        with started.ended_on_error():
            started.worker.describe()
        return started

    return lease.kept.get("measured", lambda kept: kept.is_empty or kept.holds(arms), start)


def kept_build(lease: MachineLease, arms: Mapping[str, Arm]) -> RunningBuild:
    """A process with exactly these models, in which nothing else was loaded before."""
    return kept_process(lease, arms).hold(arms)


Opened = TypeVar("Opened", bound=RunningBuild)


def open_together(stack: ExitStack, open_arms: Sequence[Callable[[], Opened]]) -> list[Opened]:
    """Start processes at once, as nothing is timed yet; the stack ends them."""
    pool = ThreadPoolExecutor(len(open_arms))
    futures = [pool.submit(open_arm) for open_arm in open_arms]
    pool.shutdown(wait=False)
    try:
        wait(futures)
    except BaseException:  # as Ctrl-C, which is not to wait for a load
        for future in futures:
            future.add_done_callback(_end_arm)
        raise
    stack.callback(_end_together, [f.result() for f in futures if not f.exception()])
    return [future.result() for future in futures]


def _end_together(arms: Sequence[RunningBuild]) -> None:
    """End processes at once: each needs a while to free its memory."""
    if arms:
        with ThreadPoolExecutor(len(arms)) as pool:
            list(pool.map(lambda arm: arm.__exit__(None), arms))


def _end_arm(opened: Future[Opened]) -> None:
    if not opened.exception():
        opened.result().worker.close()
