"""Processes that stay between comparisons, with nothing loaded."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_asperf.engine_process import EngineBuild


class IdleWorkers:
    """Keeps the processes of arms that ended well, as to start one takes as long as several pairs.

    A process serves one build only. One that ever failed, refused or was interrupted is never kept.
    """

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._lock = Lock()  # arms are opened at once

    def take(self, build: EngineBuild, call_timeout_s: float) -> Worker:
        """A process of a build, started if none is idle.

        Raises:
            EngineError: it could not be started.
        """
        with self._lock:
            fitting = [worker for worker in self._idle if worker.build == build and worker.alive]
            if fitting:
                self._idle.remove(fitting[0])
        if not fitting:
            return Worker(build, call_timeout_s=call_timeout_s)
        fitting[0].call_timeout_s = call_timeout_s
        return fitting[0]

    def give_back(self, worker: Worker) -> None:
        """Keep a process for the next arm, or end it."""
        try:
            if not worker.has_failed:
                with suppress(EngineError):  # which is noted as a failure
                    worker.clear()
        finally:
            if worker.has_failed:
                worker.close()
            else:
                with self._lock:
                    self._idle.append(worker)

    def keep_only(self, builds: Collection[EngineBuild]) -> None:
        """End the processes of other builds."""
        with self._lock:
            other = [worker for worker in self._idle if worker.build not in builds]
            self._idle = [worker for worker in self._idle if worker not in other]
        for worker in other:
            worker.close()

    def close(self) -> None:
        """End all of them."""
        self.keep_only(())
