"""powermetrics' plists: energy of each rail and thermal pressure, summed sample by sample."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from pytest_asperf.audit.sniff import UnreadableError
from pytest_asperf.hardware.meters.powermetrics import (
    SAMPLED,
    NotASampleError,
    documents,
    parse_sample,
)

if TYPE_CHECKING:
    from pytest_asperf.hardware.meters.powermetrics import PowerSample


@dataclass(slots=True)
class Rail:
    """One rail over the samples that have it: energy, and the least and most power of a sample."""

    n_samples: int = 0
    energy_mj: float = 0.0
    least_w: float = math.inf
    most_w: float = 0.0

    @property
    def energy_j(self) -> float:
        """The energy in J."""
        return self.energy_mj / 1e3

    def add(self, energy_mj: float, elapsed_ns: int) -> None:
        """Add a sample's energy."""
        watts = energy_mj * 1e6 / elapsed_ns
        self.n_samples += 1
        self.energy_mj += energy_mj
        self.least_w = min(self.least_w, watts)
        self.most_w = max(self.most_w, watts)


@dataclass(slots=True)
class PowerLog:
    """All samples of a file.

    Attributes:
        thermal: in how many samples each word for thermal pressure occurs.
        broken: samples that could not be read, such as a last one that is cut off.
    """

    n_samples: int = 0
    elapsed_ns: int = 0
    thermal: Counter[str] = field(default_factory=Counter)
    machine: str = ""
    broken: int = 0
    _rails: dict[str, Rail] = field(default_factory=lambda: {name: Rail() for name in SAMPLED})

    @property
    def elapsed_s(self) -> float:
        """The time of all samples."""
        return self.elapsed_ns / 1e9

    @property
    def rails(self) -> dict[str, Rail]:
        """By name, those that every sample has."""
        return {name: r for name, r in self._rails.items() if r.n_samples == self.n_samples}

    def add(self, sample: PowerSample) -> None:
        """Add one sample."""
        self.n_samples += 1
        self.elapsed_ns += sample.elapsed_ns
        self.machine = self.machine or sample.machine
        if sample.thermal:
            self.thermal[sample.thermal] += 1
        for rail, energy_mj in sample.energy_mj.items():
            self._rails[rail].add(energy_mj, sample.elapsed_ns)


def read_power(file: BinaryIO) -> PowerLog:
    """Read powermetrics' output, one sample at a time."""
    power = PowerLog()
    for document in documents(file):
        try:
            power.add(parse_sample(document or b""))
        except NotASampleError:
            power.broken += 1
    if not power.n_samples:
        raise UnreadableError("a plist, and no sample of powermetrics in it")
    return power
