"""powermetrics' plists and text: energy of each rail, and thermal pressure, by sample."""

import math
import re
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from pytest_asperf.audit.sniff import UnreadableError
from pytest_asperf.hardware.meters.meter import Rail as RailName
from pytest_asperf.hardware.meters.powermetrics import (
    SAMPLED,
    NotASampleError,
    PowerSample,
    documents,
    parse_sample,
)
from pytest_asperf.worker.printed import Unread

_BEGINS: Final = re.compile(r"\*+ Sampled system activity .*\(([\d.]+)ms elapsed\)")
_POWER: Final = re.compile(
    r"(CPU|Package|Clusters Total|GPU|ANE|DRAM) Power: (\d{1,9}(?:\.\d+)?) (m?)W$"
)
_LIKE_POWER: Final = re.compile(r"(?:CPU|Clusters Total|GPU|ANE) Power: ")
#: The CPU's power by the first name that a release prints.
_RAILS: Final[dict[str, RailName]] = {
    "CPU": "cpu", "Clusters Total": "cpu", "GPU": "gpu", "ANE": "ane",
}  # fmt: skip
_MODEL: Final = re.compile(r"Machine model: (\S+)")
_PRESSURE: Final = re.compile(r"Current pressure level: (\w+)")


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
    """All samples of a file."""

    n_samples: int = 0
    elapsed_ns: int = 0
    #: the words for thermal pressure in order, each change once; empty if a sample has none
    thermal: list[str] = field(default_factory=list)
    machine: str = ""
    broken: int = 0  #: samples that could not be read, such as a last one that is cut off
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
        if self.thermal[-1:] != [sample.thermal]:
            self.thermal.append(sample.thermal)
        for rail, energy_mj in sample.energy_mj.items():
            self._rails[rail].add(energy_mj, sample.elapsed_ns)


def read_power(file: BinaryIO) -> PowerLog:
    """Read powermetrics' output, one sample at a time."""
    power, why = PowerLog(), ""
    for document in documents(file):
        try:
            power.add(parse_sample(document or b""))
        except NotASampleError as error:
            power.broken += 1
            why = str(error)
    if not power.n_samples:
        raise UnreadableError(f"a plist, and no sample of powermetrics with a rail in it ({why})")
    return power


@dataclass(slots=True)
class PowerTextReader:
    """Gathers the samples of powermetrics' text."""

    log: PowerLog = field(default_factory=PowerLog)
    lacks_time: bool = False  #: whether a power has no sample above it
    unread: Unread = field(default_factory=Unread)  #: powers that are cut off or in another form
    _elapsed_ms: float = 0.0
    _mw: dict[RailName, float] = field(default_factory=dict)
    _thermal: str = ""
    _machine: str = ""

    def feed(self, line: str) -> None:
        """Parse one line."""
        if begins := _BEGINS.match(line):
            self.end()
            self._elapsed_ms = _milliseconds(begins[1])
        elif machine := _MODEL.match(line):
            self._machine = machine[1][:40]
        elif self._elapsed_ms and (power := _POWER.match(line)):
            if rail := _RAILS.get(power[1]):
                mw = float(power[2]) * (1.0 if power[3] else 1e3)
                self._mw.setdefault(rail, mw)  # that of the GPU is printed twice
        elif _POWER.match(line):
            self.lacks_time = True
        elif _LIKE_POWER.match(line):
            self.unread.add(line)
        elif self._elapsed_ms and (pressure := _PRESSURE.match(line)):
            self._thermal = pressure[1][:40]

    def end(self) -> None:
        """End the sample that is open."""
        if self._elapsed_ms and self._mw:
            seconds = self._elapsed_ms / 1e3
            energy = {rail: mw * seconds for rail, mw in self._mw.items()}
            sample = PowerSample(round(seconds * 1e9), energy, self._thermal, self._machine)
            self.log.add(sample)
        elif self._elapsed_ms:
            self.log.broken += 1
        self._elapsed_ms, self._mw, self._thermal = 0.0, {}, ""


def _milliseconds(text: str) -> float:
    try:
        elapsed = float(text)
    except ValueError:
        return 0.0
    return elapsed if 0 < elapsed < 1e9 else 0.0
