"""Which memory bandwidth bounds a measurement of token generation (TG)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.errors import Advice, HardwareError
from pytest_asperf.hardware.in_force import BandwidthBound

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.hardware.machine import Bandwidth
    from pytest_asperf.measure.results import ThroughputResult


@dataclass(frozen=True, slots=True)
class BandwidthBounds:
    """Which memory bandwidth bounds TG on the hardware in force: of what the weights are read from.

    Attributes:
        measure: measures this machine's bandwidth if it is not known yet; again if given True.
    """

    hardware: Hardware
    measure: Callable[[bool], Bandwidth]

    def expected(self, result: ThroughputResult) -> BandwidthBound:
        """The bandwidth that utilisation is a share of; HardwareError where it is not known."""
        hardware = self.hardware
        if (published := self._published(result)) is not None:
            kind = published.kind if hardware.is_this_machine else f"{published.kind}, declared"
            return BandwidthBound(published.gbs, kind, self._cache_bytes(result), self._doubt)
        if _is_on_card(result) or not hardware.is_this_machine:
            raise HardwareError(
                f"the memory bandwidth of {hardware.headline()} is not known",
                why="utilisation is a share of it",
                remedy=Advice("name the chip (asperf doctor prints what is missing)", "hardware"),
            )
        measured = self.measure(False)  # noqa: FBT003  # as declared above
        used_gbs = (result.bytes_per_token or 0) * result.rate.point / 1e9
        if used_gbs > measured.gbs:
            # A machine that was busy while its bandwidth was measured has a bound too low.
            measured = self.measure(True)  # noqa: FBT003  # as above
        return BandwidthBound(measured.gbs, measured.kind, self._cache_bytes(result))

    def peak(self, result: ThroughputResult) -> BandwidthBound | None:
        """The bandwidth that no measurement can exceed; None if none is published."""
        published = self._published(result)
        if published is None:
            return None
        return BandwidthBound(published.peak_gbs, "theoretical", self._cache_bytes(result))

    def _published(self, result: ThroughputResult) -> Bandwidth | None:
        return self.hardware.weights_bandwidth(on_card=_is_on_card(result))

    def _cache_bytes(self, result: ThroughputResult) -> int:
        """The size of the last-level cache in front of that memory."""
        return 0 if _is_on_card(result) else self.hardware.machine.cache_bytes or 0

    @property
    def _doubt(self) -> str:
        """Why no claim can rest on the declared hardware's figures; empty if one can."""
        actual = self.hardware.contradiction
        return f"declared {self.hardware.name}, and this machine is {actual}" if actual else ""


def _is_on_card(result: ThroughputResult) -> bool:
    return bool(result.ran.loaded.layers_offloaded)
