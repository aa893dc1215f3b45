"""Interleaved timing, so that a disturbance of the machine hits both alike."""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Result = TypeVar("Result")


class PeerError(Exception):
    """A process failed, or its output is wrong."""


class Cost(NamedTuple):
    """The cost of a process: its own time and the processor time of it and its children."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that ended well.

    Attributes:
        text: its stdout.
        log: its stderr.
        cost: from before its start to after its end.
    """

    text: str
    log: str
    cost: Cost


def run(command: Sequence[str]) -> Finished:
    """Run a process to its end, timed, in a session of its own, as our engines are.

    Linux divides the processor between sessions first.

    Raises:
        PeerError: it ended with another status than 0.
    """
    cpu_before, started = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    wall_s = time.perf_counter() - started
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-2000:]
        raise PeerError(f"{' '.join(command)} ended with status {done.returncode}:\n{tail}")
    return Finished(done.stdout, done.stderr, Cost(wall_s, _children_cpu_s() - cpu_before))


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Confine this process, and all that it has started and starts, to some of its cores."""
    allowed = os.sched_getaffinity(0)
    _confine(cores)
    try:
        yield
    finally:
        _confine(sorted(allowed))


def _confine(cores: Sequence[int]) -> None:
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it may end at any moment
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cores)


def interleave(
    arms: Mapping[str, Callable[[], Result]],
    *,
    rounds: int,
    seed: int,
    n_cores: int | None = None,
) -> dict[str, list[Result]]:
    """Run every variant once a round, in an order shuffled anew for each round.

    With `n_cores`, all variants of a round share a draw of so many cores. Each would stay on its
    present one, and on a virtual machine cores differ by 1.45 times for seconds.
    """
    order = random.Random(seed)  # noqa: S311  # repeatable, not secret
    usable = sorted(os.sched_getaffinity(0))
    results: dict[str, list[Result]] = {name: [] for name in arms}
    for _ in range(rounds):
        with on_cores(usable if n_cores is None else order.sample(usable, n_cores)):
            for name in order.sample(sorted(arms), len(arms)):
                results[name].append(arms[name]())
    return results


@dataclass(frozen=True, slots=True)
class Ratio:
    """One variant's times over the other's.

    Attributes:
        of_medians: ratio of the two medians.
        quartiles: lower quartile, median and upper quartile of the rounds' own ratios.
        rounds: how many.
    """

    of_medians: float
    quartiles: tuple[float, float, float]
    rounds: int

    @property
    def typical(self) -> float:
        """The median of the rounds' own: a disturbance of a round hits both of its variants."""
        return self.quartiles[1]

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        return f"{self.of_medians:.3f} (by round {middle:.3f}, {low:.3f} to {high:.3f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return ours over theirs, round by round and of the medians."""
    by_round = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(by_round, n=4, method="inclusive")
    of_medians = statistics.median(ours) / statistics.median(theirs)
    return Ratio(of_medians, (low, middle, high), len(by_round))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"
