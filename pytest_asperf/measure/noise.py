"""The measured noise of this machine: calibrations and self-checks, below the cache folder.

One file for each kind of machine. It is read by every gate and never stops one: an absent or broken
part counts as not measured.
"""

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.stats.noise import fail_rate_floor
from pytest_asperf.analysis.stats.sequential import is_fit
from pytest_asperf.engine_process import EngineFacts
from pytest_asperf.hardware.conditions import Condition
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.records import changed_record, load_record, machine_key, record_path
from pytest_asperf.hardware.watch import NOT_WATCHED, Watched
from pytest_asperf.measure.results import Provenance

_SCHEMA: Final = 1
_NAME: Final = "noise"
#: A larger file was not written by asperf.
_LARGEST_COUNT: Final = 10**9
_GATES: Final = "gates"
_SELF_CHECKS: Final = "self_checks"
_SELF_CHECK_FAILS: Final = "self_check_fails"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The noise of one workload under one engine build on one kind of machine.

    The bounds of the position are those of its 90 % interval.
    """

    workload: str
    engine: str  #: the engine build, as `EngineFacts.build` names it
    model: str
    model_sha256: str
    spread: float  #: robust standard deviation of A/A log cost ratios
    position: float  #: relative change of cost from the first to the second run of a run pair
    position_low: float
    position_high: float
    #: standard deviation of log cost from load to load, None if it is unknown
    load_sd: float | None
    pairs: int
    measured_on: str  #: the day, ISO 8601
    pair_s: float  #: seconds per pair


@dataclass(frozen=True, slots=True)
class SelfChecks:
    """How many gates of equal builds ran on a machine, and how many of them were a FAIL."""

    n: int = 0
    fails: int = 0

    @property
    def floor(self) -> float:
        """The rate of FAILs that is shown at least."""
        return fail_rate_floor(self.fails, self.n) if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a gate."""

    conditions: tuple[Condition, ...] = ()  #: the readiness before it
    #: the measured noise by workload
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    self_checks: SelfChecks = SelfChecks()
    watched: Watched = NOT_WATCHED  #: the machine during it


class NoiseStore:
    """The file of one kind of machine, kept in ``hardware/`` of the cache folder."""

    def __init__(self, cache_dir: Path, machine: Machine) -> None:
        self._path = record_path(cache_dir, _NAME, machine)
        self._machine = machine_key(machine)

    @property
    def calibrations(self) -> tuple[Calibration, ...]:
        """All calibrations that a gate can use, the latest last."""
        kept = self._load().get("calibrations")
        every = map(_calibration, kept if isinstance(kept, list) else ())
        return tuple(c for c in every if c is not None)

    @property
    def self_checks(self) -> SelfChecks:
        """How equal builds came out so far."""
        record = self._load()
        n = _count(record, _SELF_CHECKS)
        return SelfChecks(n, min(n, _count(record, _SELF_CHECK_FAILS)))

    def find(self, workload: str, engine: EngineFacts, sha256: str) -> Calibration | None:
        """The measured noise of a workload under an engine build.

        If there is none for the model of this hash, another model's noise is used.
        """
        kind = (workload, engine.build)
        known = [c for c in self.calibrations if (c.workload, c.engine) == kind]
        return max(reversed(known), key=lambda c: c.model_sha256 == sha256, default=None)

    def keep(self, calibrations: Iterable[Calibration]) -> None:
        """Keep calibrations, each in the place of an earlier one of the same kind."""
        with self._changed() as record:
            latest = {_kind(c): c for c in calibrations}
            others = [c for c in self.calibrations if _kind(c) not in latest]
            record["calibrations"] = [asdict(c) for c in (*others, *latest.values())]

    def count_gate(self) -> int:
        """Count a gate; how many were counted on this machine."""
        with self._changed() as record:
            record[_GATES] = n = _count(record, _GATES) + 1
        return n

    def note_self_check(self, *, failed: bool) -> None:
        """Count a gate of equal builds."""
        with self._changed() as record:
            record[_SELF_CHECKS] = _count(record, _SELF_CHECKS) + 1
            record[_SELF_CHECK_FAILS] = _count(record, _SELF_CHECK_FAILS) + failed

    def around(
        self, base: Provenance, workloads: Iterable[str], conditions: tuple[Condition, ...]
    ) -> Surroundings:
        """The measured noise for a comparison with a baseline."""
        every = {name: self.find(name, base.engine, base.sha256) for name in workloads}
        known = {name: c for name, c in every.items() if c is not None}
        return Surroundings(conditions, known, self.self_checks)

    def _load(self) -> dict[str, object]:
        return load_record(self._path, _SCHEMA) or {}

    def _changed(self) -> AbstractContextManager[dict[str, object]]:
        fresh = {"schema": _SCHEMA, "machine": self._machine}
        return changed_record(self._path, fresh, what="this machine's noise")


def _kind(calibration: Calibration) -> tuple[str, str, str]:
    return (calibration.workload, calibration.engine, calibration.model_sha256)


def _calibration(data: object) -> Calibration | None:
    """Read one from a file that anybody may have written to."""
    try:
        found = Calibration(**data)  # type: ignore[arg-type]  # other types raise below
        dt.date.fromisoformat(found.measured_on)
        words = (found.workload, found.engine, found.model, found.model_sha256)
        figures = (found.spread, found.position, found.pairs, found.load_sd or 0.0, found.pair_s)
        bounds = (found.position_low, found.position_high)
        sound = all(isinstance(word, str) for word in words) and not math.isnan(sum(bounds))
        sound = sound and all(map(math.isfinite, figures))
        sound = sound and found.spread >= 0 < found.pair_s and is_fit(found.spread)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if sound else None


def _count(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    return value if isinstance(value, int) and 0 <= value <= _LARGEST_COUNT else 0
