"""Samples of powermetrics in their real shape, and the phases that counters make of them."""

import io
import plistlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.meters.meter import Counter, CounterTrace, Meter
from pytest_asperf.hardware.meters.powermetrics import SAMPLED, documents, parse_sample
from pytest_asperf.hardware.watch import Watched
from pytest_asperf.measure.energy import EnergyResult
from pytest_asperf.measure.metered import PhaseEnergy
from pytest_asperf.measure.results import Provenance
from tests.engine_facts import ENGINE, loaded

RAN = Provenance("m", Path("m.gguf"), "0" * 64, ENGINE, loaded(), None, EngineSettings())

WATTS, PERIOD_S = 300.0, 0.01
#: Seconds of a run of 8 tokens.
RUN_S = 0.005


def replayed_counter(name: str = "GPU 0 (NVML)", **more: object) -> Counter:
    """A counter at 300 W that is published by the first reading after 10 ms.

    However late a busy machine comes to read it, its energy is that of the moment.
    """
    published_s = time.monotonic()

    def read_j() -> float:
        nonlocal published_s
        if (now := time.monotonic()) - published_s >= PERIOD_S:
            published_s = now
        return WATTS * published_s

    rail = more.pop("rail", "gpu")
    return Counter(name, rail, read_j, **more)  # type: ignore[arg-type]  # as named


def no_counter() -> Meter:
    """Raise like a machine without a counter."""
    raise HardwareError("no energy counter here: gpu: no driver", why="x", remedy="buy one")


def sample(
    elapsed_ms: float,
    gpu_mw: float,
    ane_mw: float = 0.0,
    pressure: str = "Nominal",
    *,
    cpu_mw: float = 900.0,
) -> bytes:
    """One sample: power in mW, energy in mJ, and the GPU's own sampler next to the processor's."""
    seconds = elapsed_ms / 1e3
    powers = {"cpu": cpu_mw, "gpu": gpu_mw, "ane": ane_mw}
    energies = {f"{rail}_energy": round(mw * seconds) for rail, mw in powers.items()}
    return plistlib.dumps(
        {
            "is_delta": True,
            "elapsed_ns": round(elapsed_ms * 1e6),
            "hw_model": "Mac16,5",
            "processor": {
                **energies,
                **{f"{rail}_power": mw for rail, mw in powers.items()},
                "combined_power": sum(powers.values()),
                "clusters": [{"name": "P0-Cluster", "freq_hz": 1.15444e09, "idle_ratio": 0.47}],
            },
            "thermal_pressure": pressure,
            "gpu": {"freq_hz": 338.0, "gpu_energy": round(gpu_mw * seconds) + 8},
        }
    )


def stream(powers_mw: Mapping[str, float], n_samples: int = 12) -> bytes:
    """Samples of a steady phase, of unequal length like powermetrics'."""
    lengths_ms = (207.9, 200.4, 213.1)
    each = [sample(lengths_ms[k % 3], **powers_mw) for k in range(n_samples)]  # type: ignore[arg-type]  # by name
    return b"\0".join([*each, b""])


def phase(recorded: bytes, *, n_tokens: int = 0, token_s: float = 0.0) -> PhaseEnergy:
    """The results of counters that are read after each sample, on a saved stream."""
    joules, elapsed_s = dict.fromkeys(SAMPLED, 0.0), [0.0]
    counters = [
        Counter(f"{rail.upper()} (powermetrics)", rail, lambda rail=rail: joules[rail])  # type: ignore[misc]  # bound now
        for rail in SAMPLED
    ]
    traces = [CounterTrace(counter) for counter in counters]
    for document in documents(io.BytesIO(recorded)):
        read = parse_sample(document or b"")
        elapsed_s.append(elapsed_s[-1] + read.elapsed_ns / 1e9)
        for rail, mj in read.energy_mj.items():
            joules[rail] += mj / 1e3
        for trace in traces:
            trace.poll(lambda: elapsed_s[-1])
    windows = [window for trace in traces if (window := trace.window(0.0, elapsed_s[-1]))]
    moved = {window.name for window in windows}
    still = tuple(counter for counter in counters if counter.name not in moved)
    wall_s = n_tokens * token_s or elapsed_s[-1]
    return PhaseEnergy(tuple(windows), (), still, (), wall_s, wall_s, n_tokens)


def energy(
    powers_mw: Mapping[str, float], idle_mw: Mapping[str, float], token_s: Iterable[float]
) -> EnergyResult:
    """A measurement of phases with about these powers, and these times of a token."""
    phases = tuple(
        phase(
            stream({rail: mw * (1 + 0.01 * k) for rail, mw in powers_mw.items()}),
            n_tokens=512,
            token_s=s,
        )
        for k, s in enumerate(token_s)
    )
    workload = Workload("pp", 512, metered=True)
    return EnergyResult(workload, phase(stream(idle_mw)), phases, RAN, Watched())
