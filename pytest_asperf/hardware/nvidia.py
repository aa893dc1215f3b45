"""NVIDIA cards: through NVML if its Python binding is installed, otherwise through nvidia-smi."""

import csv
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_asperf.analysis.facts import POWER_CAP, CardSeen
from pytest_asperf.hardware import probe

_BASIC = ("name", "memory.total", "driver_version")
# An unknown field fails the whole query, so the newest come first.
_QUERIES = (
    (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_event_reasons.active"),
    (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_throttle_reasons.active"),
    _BASIC,
)
# By their names, newest first.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
# Bits of NVML's nvmlClocksEventReasons that keep the clock below the requested one.
_SLOWDOWNS = (
    (0x04, POWER_CAP),
    (0x08, "hardware slowdown"),
    (0x20, "thermal slowdown (software)"),
    (0x40, "thermal slowdown (hardware)"),
    (0x80, "power brake"),
)


@dataclass(frozen=True, slots=True)
class CardReading:
    """The driver's facts about one card at one moment."""

    name: str
    memory_bytes: int | None = None
    driver: str | None = None
    #: True if MIG splits the card; None if the driver does not report it
    partitioned: bool | None = None
    busy_percent: int | None = None  #: share of the last sampling period in which a kernel ran
    clock_reasons: int | None = None  #: NVML's bit mask of the clock's limits now

    @property
    def slowdowns(self) -> tuple[str, ...]:
        """The reasons for a lower clock, in words; idle clocks and chosen clocks are none."""
        return _words(self.clock_reasons)


class CardWatch:
    """Reads the clocks of all cards at each call; no card without NVML's Python binding."""

    def __init__(self) -> None:
        self._nvml = open_nvml()
        self._handles = [] if self._nvml is None else handles_of(self._nvml)

    def read(self) -> tuple[CardSeen, ...]:
        """The clock of each card, in NVML's order."""
        return tuple(map(self._clock, self._handles))

    def close(self) -> None:
        """Leave the driver alone."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def _clock(self, handle: Any) -> CardSeen:
        nvml = self._nvml
        clock = asked(nvml, handle, lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM))
        return CardSeen(clock, _words(asked_first(nvml, handle, *_REASONS)))


def open_nvml() -> Any:
    """``pynvml`` of nvidia-ml-py, initialised; None without it or without a driver."""
    nvml = _imported()
    return nvml if nvml is not None and _is_initialised(nvml) else None


def _imported() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _is_initialised(nvml: Any) -> bool:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return False
    return True


def handles_of(nvml: Any) -> list[Any]:
    """A handle of each card that the driver shows."""
    try:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []


def asked(nvml: Any, handle: Any, getter: Callable[[Any], Any] | None) -> Any:
    """The value of a getter for a card; None if the library or the card has no such value."""
    try:
        return None if getter is None else getter(handle)
    except nvml.NVMLError:
        return None


def asked_first(nvml: Any, handle: Any, *names: str) -> Any:
    """The first of these getters that the library has and the card supports."""
    answers = (asked(nvml, handle, getattr(nvml, name, None)) for name in names)
    return next((answer for answer in answers if answer is not None), None)


def read_cards() -> tuple[CardReading, ...]:
    """The cards that the driver shows this process; empty without card or driver."""
    nvml = _imported()
    cards = None if nvml is None else from_nvml(nvml)
    return _from_smi() if cards is None else cards


def from_nvml(nvml: Any) -> tuple[CardReading, ...] | None:
    """All cards by ``pynvml`` of nvidia-ml-py; None if its library does not answer."""
    if not _is_initialised(nvml):
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

    Lines of another width, such as an error, are no cards.
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
    memory = asked_first(nvml, handle, "nvmlDeviceGetMemoryInfo")
    mig = asked_first(nvml, handle, "nvmlDeviceGetMigMode")
    busy = asked_first(nvml, handle, "nvmlDeviceGetUtilizationRates")
    return CardReading(
        name=_decoded(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=None if memory is None else int(memory.total),
        driver=driver,
        partitioned=None if mig is None else bool(mig[0]),
        busy_percent=None if busy is None else int(busy.gpu),
        clock_reasons=asked_first(nvml, handle, *_REASONS),
    )


def _words(clock_reasons: int | None) -> tuple[str, ...]:
    return tuple(word for bit, word in _SLOWDOWNS if (clock_reasons or 0) & bit)


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
