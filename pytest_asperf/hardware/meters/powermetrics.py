"""Energy on Apple silicon by powermetrics, for users whose sudo allows it.

Each plist has the energy of an interval, in mJ over `elapsed_ns`. Intervals are longer than
requested and differ in length, so energies are added up and no power is averaged.
"""

import math
import os
import plistlib
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail, Rail

#: The rails that a sample may have. Memory and the wall are not in it.
SAMPLED: Final[tuple[Rail, ...]] = ("cpu", "gpu", "ane")
_BLOCK_BYTES: Final = 1 << 18
#: A sample with every process of a busy machine needs about 0.3 MB.
_MAX_SAMPLE_BYTES: Final = 4 << 20
_END: Final = b"</plist>"
_PROGRAM: Final = "/usr/bin/powermetrics"
_ARGUMENTS: Final = ("-f", "plist", "-i", "200", "--samplers", "cpu_power,gpu_power,ane_power")
_FIRST_SAMPLE_S: Final = 5.0


class NotASampleError(ValueError):
    """A document is no sample of powermetrics."""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """One sample: each rail's energy over its interval, and the thermal pressure in words."""

    elapsed_ns: int
    energy_mj: Mapping[Rail, float]
    thermal: str = ""
    machine: str = ""


def parse_sample(document: bytes) -> PowerSample:
    """One plist; raises NotASampleError for any other text."""
    try:
        content = plistlib.loads(document, fmt=plistlib.FMT_XML)
        elapsed_ns = int(content["elapsed_ns"])
        energy_mj = _energy_mj(content, elapsed_ns)
        thermal, machine = content.get("thermal_pressure", ""), content.get("hw_model", "")
    except Exception as error:  # an open set: codecs' errors, plistlib's own IndexError
        raise NotASampleError("not a sample") from error
    if not energy_mj:
        raise NotASampleError("no rail: its samplers measure no power")
    if elapsed_ns < 1 or any(not math.isfinite(mj) or mj < 0 for mj in energy_mj.values()):
        raise NotASampleError(f"{energy_mj} mJ in {elapsed_ns} ns")
    return PowerSample(elapsed_ns, energy_mj, str(thermal)[:40], str(machine))


def _energy_mj(content: Mapping[str, Any], elapsed_ns: int) -> dict[Rail, float]:
    """The energy of each rail; some releases give mW alone, and the GPU's sampler its own key."""
    processor = content.get("processor", {})
    found: dict[Rail, float] = {}
    for rail in SAMPLED:
        if f"{rail}_energy" in processor:
            found[rail] = float(processor[f"{rail}_energy"])
        elif "gpu_energy" in content.get(rail, {}):
            found[rail] = float(content[rail]["gpu_energy"])
        elif f"{rail}_power" in processor:
            found[rail] = float(processor[f"{rail}_power"]) * elapsed_ns / 1e9
    return found


def documents(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield each document, which end with NUL; None for one that is too long to be a sample."""
    rest, dropping = b"", False
    while block := _read_some(file):
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


def _read_some(file: BinaryIO) -> bytes:
    """A block, or the output so far of a running program."""
    read = getattr(file, "read1", file.read)
    return bytes(read(_BLOCK_BYTES))


class RunningSum:
    """Adds up a stream of samples in a thread of its own."""

    def __init__(self, file: BinaryIO) -> None:
        #: by rail, of all samples since one that could not be read
        self.joules: dict[Rail, float] = {}
        self.has_begun = threading.Event()  #: set at the first sample
        self._thread = threading.Thread(target=self._run, args=(file,), daemon=True)
        self._thread.start()

    def _run(self, file: BinaryIO) -> None:
        # The file is closed under the thread when the meter is.
        with suppress(ValueError, OSError):
            for document in documents(file):
                self._add(document or b"")

    def _add(self, document: bytes) -> None:
        try:
            sample = parse_sample(document)
        except NotASampleError:
            # A sum that falls voids the window that lacks this sample, and no later one.
            self.joules = dict.fromkeys(self.joules, 0.0)
            return
        for rail, mj in sample.energy_mj.items():
            self.joules[rail] = self.joules.get(rail, 0.0) + mj / 1e3
        self.has_begun.set()

    def read_j(self, rail: Rail) -> float:
        """The energy of a rail so far; HardwareError if powermetrics has ended."""
        if not self._thread.is_alive():
            raise HardwareError(
                "powermetrics has ended",
                why="the energy since then is not known",
                remedy=f"run it by hand and see why: sudo {_PROGRAM} {' '.join(_ARGUMENTS)}",
            )
        return self.joules[rail]


def powermetrics_meter() -> Meter:
    """The counters of a powermetrics that runs until the meter is closed.

    sudo runs without a password: without permission the rails are missing.
    """
    sudo = () if os.geteuid() == 0 else ("/usr/bin/sudo", "-n")
    if sudo and probe.run((*sudo, "-l", _PROGRAM)) in {None, ""}:
        remedy = "run `sudo -v` first, or install zeus-apple-silicon"
        return Meter(missing=(MissingRail("cpu", "powermetrics needs sudo", remedy),))
    try:
        process = subprocess.Popen(
            (*sudo, _PROGRAM, *_ARGUMENTS),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        return Meter(missing=(MissingRail("cpu", f"powermetrics: {error.strerror}"),))
    assert process.stdout is not None  # noqa: S101  # as requested
    running = RunningSum(process.stdout)  # type: ignore[arg-type]  # buffered, so binary
    close = partial(_end, process)
    if not running.has_begun.wait(_FIRST_SAMPLE_S):
        close()
        reason = f"powermetrics gave no sample with a rail in {_FIRST_SAMPLE_S:g} s"
        return Meter(missing=(MissingRail("cpu", reason),))
    counters = tuple(
        Counter(f"{rail.upper()} (powermetrics)", rail, partial(running.read_j, rail))
        for rail in SAMPLED
        if rail in running.joules
    )
    return Meter(counters, close=close)


def _end(process: subprocess.Popen[Any]) -> None:
    """End powermetrics; one that sudo runs ends with its pipe."""
    with suppress(PermissionError):
        process.terminate()
    if process.stdout is not None:
        process.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2.0)
