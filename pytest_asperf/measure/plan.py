"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """How much is measured.

    Attributes:
        chunks: chunks that PPL is taken over, or None for all of the corpus.
        wait_s: time to wait for another measurement on this machine.
        self_check_every: gates of a machine of which one is preceded by a self-check, or None.
    """

    repetitions: int = 10
    chunks: int | None = 40
    seed: int = 0
    call_timeout_s: float = 600.0
    wait_s: float = 600.0
    self_check_every: int | None = None
