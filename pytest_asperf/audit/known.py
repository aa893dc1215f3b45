"""Facts from the options and from all files together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE
from pytest_asperf.audit.read import FileReading
from pytest_asperf.errors import ConfigError, listing, printable
from pytest_asperf.hardware.in_force import detect, in_force
from pytest_asperf.hardware.machine import published_bandwidth
from pytest_asperf.hardware.profiles import Profile, match_profile
from pytest_asperf.modelfiles.gguf_read import GgufInfo, bytes_per_token, inspect_gguf
from pytest_asperf.worker.printed.model_facts import ModelFacts

#: llama-bench's own default; its CSV, SQL and Markdown have no number of repetitions.
DEFAULT_REPETITIONS: Final = 5
#: No chip with a profile has a larger last-level cache: its content need not come from memory.
CACHE_BYTES: Final = 128e6
_MODEL_SUFFIX: Final = ".gguf"


@dataclass(frozen=True, slots=True)
class Options:
    """Facts that the files lack; `repetitions` are llama-bench's if it does not print them."""

    hardware: Profile | None = None
    models: Mapping[str, GgufInfo] = field(default_factory=dict)
    baseline: Path | None = None
    repetitions: int | None = None
    confidence: float = DECISION_CONFIDENCE


def parse_options(
    hardware: str | None,
    models: Iterable[Path],
    baseline: Path | None,
    repetitions: int | None,
    confidence: float,
) -> Options:
    """The options of the command, once checked; raises ConfigError, HardwareError or ModelError."""
    if not 0 < confidence < 1:
        raise ConfigError(
            f"--confidence={confidence} is not between 0 and 1",
            why="it is the share of intervals that contain the true value",
            remedy="leave it out for 0.9, at which verdicts are judged; or give 0.95",
        )
    profile = None
    if hardware is not None:
        profile = in_force(hardware, detect()).profile
    headers = {path.name: inspect_gguf(path) for path in models}
    return Options(profile, headers, baseline, repetitions, confidence)


def _check_models(models: Mapping[str, GgufInfo], names: set[str]) -> None:
    unused = models.keys() - names
    unnamed = any(not name.endswith(_MODEL_SUFFIX) for name in names)
    if unused and not (unnamed and len(models) == 1):
        seen = listing(printable(name, 80) for name in names) or "none"
        raise ConfigError(
            f"no file is about --model {printable(min(unused))}",
            why="its bytes per token would not be used",
            remedy=f"give the file that the tool loaded, under its name; the logs name {seen}",
        )


@dataclass(frozen=True, slots=True)
class Known:
    """Facts for judging figures."""

    options: Options
    #: highest rate in tok/s of generation without speculation, by model and machine
    alone: Mapping[tuple[str, str], float]
    logged: Mapping[str, ModelFacts]

    @classmethod
    def of(cls, readings: Iterable[FileReading], options: Options) -> Known:
        """Gather the facts of all files; raises ConfigError for a model that no file is about."""
        alone: dict[tuple[str, str], float] = {}
        logged: dict[str, ModelFacts] = {}
        names: set[str] = set()
        for reading in readings:
            rates = [
                ((row.model, row.device), row.mean_rate)
                for row in (reading.log.bench.rows if reading.log else ())
                if row.is_generation and not row.n_depth
            ]
            rates += [
                ((row.subject, row.words.get("machine", "")), row.numbers["rate"])
                for row in reading.table
                if row.subject and row.numbers.get("n_gen") and row.numbers.get("rate")
            ]
            for key, rate in rates:
                alone[key] = max(rate, alone.get(key, 0.0))
            if reading.log is None:
                continue
            for model in reading.log.models:
                logged.setdefault(model.file_name, model)
                names.add(model.file_name)
            names.update(row.model for row in reading.log.bench.rows)
            names.update(str(run.work.get("model", "")) for run in reading.log.load)
        _check_models(options.models, names)
        return cls(options, alone, logged)

    def bandwidth_gbs(self, devices: Sequence[str]) -> float | None:
        """Upper bound of the memory traffic of the devices that a tool names; None if uncertain."""
        profile = self.options.hardware
        if profile is not None:
            return max(profile.bandwidth_gbs, profile.bandwidth_theoretical_gbs or 0.0)
        if len(set(devices)) != 1:
            return None
        bandwidth = published_bandwidth(match_profile(devices[0]))
        return bandwidth.peak_gbs if bandwidth else None

    def least_step_bytes(self, file_name: str, depth: int = 0) -> float | None:
        """Lower bound of the bytes that one step reads; None if unknown."""
        models = self.options.models
        given = models.get(file_name)
        if given is None and len(models) == 1 and not file_name.endswith(_MODEL_SUFFIX):
            (given,) = models.values()  # llama-bench's own table does not name a file
        if given is not None:
            return bytes_per_token(given, depth=depth)
        logged = self.logged.get(file_name)
        return logged.least_step_bytes if logged else None

    def rate_alone(self, model: str, machines: Iterable[str]) -> float | None:
        """A model's rate without speculation on one of the machines, if known."""
        rates = [rate for m in machines if (rate := self.alone.get((model, m))) is not None]
        return max(rates, default=None)
