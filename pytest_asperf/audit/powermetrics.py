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


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail over all samples: energy in J, and the least and most power of a sample in W."""

    energy_j: float
    least_w: float
    most_w: float


@dataclass(frozen=True, slots=True)
class PowerLog:
    """All samples of a file.

    Attributes:
        rails: by name, those that every sample has.
        thermal: in how many samples each word for thermal pressure occurs.
        broken: samples that could not be read, such as a last one that is cut off.
    """

    n_samples: int
    elapsed_s: float
    rails: Mapping[str, Rail]
    thermal: Mapping[str, int]
    machine: str
    broken: int


@dataclass(slots=True)
class _Sums:
    n: int = 0
    elapsed_ns: int = 0
    energy_mj: dict[str, float] = field(default_factory=dict)
    least_w: dict[str, float] = field(default_factory=dict)
    most_w: dict[str, float] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    thermal: Counter[str] = field(default_factory=Counter)
    machine: str = ""

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
        self.n += 1
        self.elapsed_ns += elapsed_ns
        self.machine = self.machine or str(sample.get("hw_model", ""))
        if "thermal_pressure" in sample:
            self.thermal[str(sample["thermal_pressure"])[:40]] += 1
        for rail, mj in energies.items():
            watts = mj * 1e6 / elapsed_ns
            self.seen[rail] += 1
            self.energy_mj[rail] = self.energy_mj.get(rail, 0) + mj
            self.least_w[rail] = min(self.least_w.get(rail, math.inf), watts)
            self.most_w[rail] = max(self.most_w.get(rail, 0.0), watts)


def read_power(file: BinaryIO) -> PowerLog:
    """Read powermetrics' output, one sample at a time."""
    sums, broken = _Sums(), 0
    for document in _documents(file):
        try:
            sums.add(_parsed(document))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            broken += 1
    if not sums.n:
        raise UnreadableError("a plist, and no sample of powermetrics in it")
    return PowerLog(
        sums.n,
        sums.elapsed_ns / 1e9,
        {
            rail: Rail(sums.energy_mj[rail] / 1e3, sums.least_w[rail], sums.most_w[rail])
            for rail in RAILS
            if sums.seen[rail] == sums.n
        },
        dict(sums.thermal),
        sums.machine,
        broken,
    )


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
