"""NVIDIA cards: through NVML where its Python binding is installed, else through nvidia-smi."""

from __future__ import annotations

import csv
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_asperf.hardware import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BASIC = ("name", "memory.total", "driver_version")
# A field that the driver does not know fails the whole query, hence newest first.
_QUERIES = (
    (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_event_reasons.active"),
    (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_throttle_reasons.active"),
    _BASIC,
)
# Bits of NVML's nvmlClocksEventReasons that hold the clock below what was asked for.
_SLOWDOWNS = (
    (0x04, "power cap"),
    (0x08, "hardware slowdown"),
    (0x20, "thermal slowdown (software)"),
    (0x40, "thermal slowdown (hardware)"),
    (0x80, "power brake"),
)


@dataclass(frozen=True, slots=True)
class CardReading:
    """What the driver says about one card at one moment.

    Attributes:
        partitioned: whether MIG splits the card; None where the driver does not say.
        busy_percent: share of the last sampling period in which a kernel ran.
        clock_reasons: NVML's bit mask of what limits the clock now.
    """

    name: str
    memory_bytes: int | None = None
    driver: str | None = None
    partitioned: bool | None = None
    busy_percent: int | None = None
    clock_reasons: int | None = None

    @property
    def slowdowns(self) -> tuple[str, ...]:
        """What holds the clock down, in words; idle clocks and chosen clocks are none."""
        return tuple(word for bit, word in _SLOWDOWNS if (self.clock_reasons or 0) & bit)


def read_cards() -> tuple[CardReading, ...]:
    """The cards that the driver shows this process; empty without card or driver."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        nvml = None
    cards = None if nvml is None else from_nvml(nvml)
    return _from_smi() if cards is None else cards


def from_nvml(nvml: Any) -> tuple[CardReading, ...] | None:
    """All cards by ``pynvml`` of nvidia-ml-py; None if its library does not answer."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        driver = _decoded(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return tuple(_nvml_card(nvml, handle, driver) for handle in handles)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def parse_smi(text: str, fields: Sequence[str]) -> tuple[CardReading, ...]:
    """The cards of ``nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits``.

    Lines of another width, such as a refusal, are no cards.
    """
    cards = []
    for row in csv.reader(text.replace("\0", "").splitlines(), skipinitialspace=True):
        if len(row) != len(fields) or not row[0].strip():
            continue
        cell = {field: _cell(value) for field, value in zip(fields, row, strict=True)}
        name, mib = cell["name"], probe.whole_number(cell["memory.total"])
        reasons = cell.get("clocks_event_reasons.active") or cell.get(
            "clocks_throttle_reasons.active"
        )
        if name is None:
            continue
        mig = cell.get("mig.mode.current")
        cards.append(
            CardReading(
                name=name,
                memory_bytes=None if mib is None else mib * 2**20,
                driver=cell["driver_version"],
                partitioned=None if mig is None else mig == "Enabled",
                busy_percent=probe.whole_number(cell.get("utilization.gpu")),
                clock_reasons=_mask(reasons),
            )
        )
    return tuple(cards)


def _from_smi() -> tuple[CardReading, ...]:
    for fields in _QUERIES:
        query = f"--query-gpu={','.join(fields)}"
        text = probe.run(("nvidia-smi", query, "--format=csv,noheader,nounits"), timeout_s=10)
        if text is None:
            return ()
        if cards := parse_smi(text, fields):
            return cards
    return ()


def _nvml_card(nvml: Any, handle: Any, driver: str) -> CardReading:
    def ask(*names: str) -> Any:
        """The first of these getters that the library has and the card supports."""
        for name in names:
            getter: Callable[[Any], Any] | None = getattr(nvml, name, None)
            try:
                if getter is not None:
                    return getter(handle)
            except nvml.NVMLError:
                continue
        return None

    memory = ask("nvmlDeviceGetMemoryInfo")
    mig = ask("nvmlDeviceGetMigMode")
    busy = ask("nvmlDeviceGetUtilizationRates")
    return CardReading(
        name=_decoded(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=None if memory is None else int(memory.total),
        driver=driver,
        partitioned=None if mig is None else bool(mig[0]),
        busy_percent=None if busy is None else int(busy.gpu),
        clock_reasons=ask(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        ),
    )


def _decoded(text: str | bytes) -> str:
    # Bindings before 11.5 return bytes.
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _cell(text: str) -> str | None:
    value = text.strip()[:200]
    return None if not value or value.startswith("[") or value == "N/A" else value


def _mask(text: str | None) -> int | None:
    try:
        return int(text, 16) if text is not None else None
    except ValueError:
        return None
