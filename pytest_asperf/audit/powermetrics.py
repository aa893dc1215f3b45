"""powermetrics' plists: the energy of each rail and the thermal pressure, summed sample by sample.

Documents are separated by NUL. Energy is in mJ over `elapsed_ns`; samples differ in length, so
that energy is added up and a power is never averaged over samples.
"""

from __future__ import annotations

import math
import plistlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pytest_asperf.audit.sniff import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RAILS: Final = ("cpu", "gpu", "ane")
_BLOCK_BYTES: Final = 1 << 18
#: A sample with every process of a busy machine takes about 0.3 MB.
_MAX_SAMPLE_BYTES: Final = 4 << 20
_END: Final = b"</plist>"


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
    _rails: dict[str, Rail] = field(default_factory=lambda: {name: Rail() for name in RAILS})

    @property
    def elapsed_s(self) -> float:
        """The time of all samples."""
        return self.elapsed_ns / 1e9

    @property
    def rails(self) -> dict[str, Rail]:
        """By name, those that every sample has."""
        return {name: r for name, r in self._rails.items() if r.n_samples == self.n_samples}

    def add(self, sample: Mapping[str, Any]) -> None:
        """Add one sample; raises ValueError, KeyError or TypeError for another tool's."""
        elapsed_ns, processor = int(sample["elapsed_ns"]), sample.get("processor", {})
        if elapsed_ns < 1:
            raise ValueError(elapsed_ns)
        energies = {
            rail: float(processor[f"{rail}_energy"])
            for rail in RAILS
            if f"{rail}_energy" in processor
        }
        if any(not math.isfinite(mj) or mj < 0 for mj in energies.values()):
            raise ValueError(energies)
        self.n_samples += 1
        self.elapsed_ns += elapsed_ns
        self.machine = self.machine or str(sample.get("hw_model", ""))
        if "thermal_pressure" in sample:
            self.thermal[str(sample["thermal_pressure"])[:40]] += 1
        for rail, energy_mj in energies.items():
            self._rails[rail].add(energy_mj, elapsed_ns)


def read_power(file: BinaryIO) -> PowerLog:
    """Read powermetrics' output, one sample at a time."""
    power = PowerLog()
    for document in _documents(file):
        try:
            power.add(_parsed(document))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            power.broken += 1
    if not power.n_samples:
        raise UnreadableError("a plist, and no sample of powermetrics in it")
    return power


def _parsed(document: bytes | None) -> Mapping[str, Any]:
    """One document; raises ValueError for whatever plistlib fails with."""
    try:
        content = plistlib.loads(document or b"", fmt=plistlib.FMT_XML)
    except Exception as error:  # an open set: codecs' errors, its own IndexError
        raise ValueError("not a plist") from error
    if not isinstance(content, dict):
        raise ValueError("not a dictionary")
    return content


def _documents(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield each document; None for one that is too long to be a sample."""
    rest, dropping = b"", False
    while block := file.read(_BLOCK_BYTES):
        if dropping and b"\0" not in block:
            continue
        *whole, rest = (rest + block).split(b"\0")
        for document in whole:
            if dropping:
                yield None
            elif document.strip():
                yield document.strip()
            dropping = False
        if len(rest) > _MAX_SAMPLE_BYTES:
            rest, dropping = b"", True
    # Some wrappers drop the NULs.
    parts = rest.split(_END)
    for part in parts[:-1]:
        yield part.strip() + _END
    if dropping or parts[-1].strip():
        yield None
