from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.hardware.linux import match_gpus
from pytest_asperf.hardware.machine import Gpu, published_bandwidth
from pytest_asperf.hardware.nvidia import CardReading, from_nvml, parse_smi

_BASIC = ("name", "memory.total", "driver_version")
_NEW = (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_event_reasons.active")
_OLD = (*_BASIC, "mig.mode.current", "utilization.gpu", "clocks_throttle_reasons.active")


def test_two_cards_with_the_new_column(recorded: Callable[[str], str]) -> None:
    """Each line is one card, with its own clock reasons and utilisation."""
    idle, busy = parse_smi(recorded("nvidia/h200-x2-event-reasons.csv"), _NEW)
    assert (idle.name, idle.driver) == ("NVIDIA H200", "580.159.03")
    assert idle.memory_bytes == 143771 * 2**20
    assert (idle.busy_percent, idle.slowdowns, idle.partitioned) == (0, (), False)
    assert (busy.busy_percent, busy.slowdowns) == (97, ("power cap",))


def test_the_old_column_means_the_same(recorded: Callable[[str], str]) -> None:
    """Before its renaming the column had the same bits."""
    (card,) = parse_smi(recorded("nvidia/h200-throttle-reasons.csv"), _OLD)
    assert card.slowdowns == ("hardware slowdown", "thermal slowdown (software)")


def test_cells_that_are_not_available_are_unknown(recorded: Callable[[str], str]) -> None:
    """A card that does not report a value has none, not zero."""
    (card,) = parse_smi(recorded("nvidia/a6000-not-available.csv"), _OLD)
    assert card == CardReading("NVIDIA RTX A6000", 49140 * 2**20, "470.256.02")


@pytest.mark.parametrize("name", ["nvidia/refused-field.txt", "nvidia/no-driver.txt"])
def test_refusals_are_no_cards(recorded: Callable[[str], str], name: str) -> None:
    """An error text of nvidia-smi does not count as a card."""
    assert parse_smi(recorded(name), _NEW) == ()
    assert parse_smi(recorded(name), _BASIC) == ()


@given(st.text() | st.text(alphabet='NVIDIA H200,"\n\r0x[]/'))
def test_any_output_is_survived(text: str) -> None:
    """Any text at all gives cards with names, or none."""
    for fields in (_BASIC, _NEW):
        assert all(card.name for card in parse_smi(text, fields))


def test_equal_cards_share_one_profile() -> None:
    """Several cards of one kind have that kind's profile and bandwidth."""
    match = match_gpus((Gpu("NVIDIA H200"), Gpu("NVIDIA H200")))
    assert match.profile is not None
    assert match.profile.id == "h200"
    bandwidth = published_bandwidth(match)
    assert bandwidth is not None
    assert bandwidth.gbs == 4800


@pytest.mark.parametrize(
    ("gpus", "note"),
    [
        ((), "no NVIDIA card"),
        ((Gpu("NVIDIA H200"), Gpu("NVIDIA H100 PCIe")), "several kinds"),
        ((Gpu("NVIDIA H200", partitioned=True),), "partitioned"),
        ((Gpu("NVIDIA GeForce RTX 9999"),), "no profile for"),
    ],
)
def test_doubtful_cards_have_no_profile(gpus: tuple[Gpu, ...], note: str) -> None:
    """Mixed, partitioned and unlisted cards are unknown, with the reason."""
    match = match_gpus(gpus)
    assert match.candidates == ()
    assert note in match.note


class _NvmlError(Exception):
    """The error of a scripted NVML."""


def _refuse(_handle: object) -> Any:
    raise _NvmlError


def _nvml(**changes: Any) -> SimpleNamespace:
    """Return the shape of pynvml with one card, some of its calls replaced."""
    calls: dict[str, Any] = {
        "NVMLError": _NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.159.03",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150754820096),
        "nvmlDeviceGetMigMode": lambda _: [0, 0],
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=7),
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x1,
    }
    return SimpleNamespace(**calls | changes)


def test_nvml_card() -> None:
    """All facts of a card come through the binding, texts as bytes or not."""
    expected = CardReading("NVIDIA H200", 150754820096, "580.159.03", False, 7, 1)  # noqa: FBT003
    assert from_nvml(_nvml()) == (expected,)


def test_nvml_without_support_leaves_unknowns() -> None:
    """A call that the card does not support is unknown, and an older name of a call is tried."""
    binding = _nvml(
        nvmlDeviceGetMigMode=_refuse,
        nvmlDeviceGetCurrentClocksEventReasons=_refuse,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x40,
    )
    cards = from_nvml(binding)
    assert cards is not None
    assert cards[0].partitioned is None
    assert cards[0].slowdowns == ("thermal slowdown (hardware)",)


def test_nvml_without_driver_is_no_answer() -> None:
    """Without a driver the binding returns nothing, so that nvidia-smi is used."""

    def no_driver() -> None:
        raise _NvmlError

    assert from_nvml(_nvml(nvmlInit=no_driver)) is None
    assert from_nvml(_nvml(nvmlDeviceGetHandleByIndex=_refuse)) is None
