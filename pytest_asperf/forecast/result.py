"""What `asperf predict` computes of a machine and its models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_asperf.analysis.capacity import (
        Demand,
        Fit,
        MemoryCapacity,
        Payoff,
        Verification,
    )
    from pytest_asperf.hardware.in_force import Ceiling
    from pytest_asperf.report.sections import Failure


@dataclass(frozen=True, slots=True)
class SpeculationForecast:
    """What a draft gives one target.

    Attributes:
        ratio: speed of the draft over the target's, None where it is not known.
        ratio_basis: what that rests on.
        rows: for each assumption on the cost of verifying, what follows at each acceptance rate.
    """

    ratio: float | None
    ratio_basis: str
    rows: tuple[tuple[Verification, tuple[Payoff, ...]], ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is predicted of one model.

    Attributes:
        demand: what the model asks of memory.
        fit: whether it fits, with the draft where there is one; None where memory is unknown.
        ceilings: TG in tok/s that the bandwidth allows, with an empty and with a full context.
        reached: of the first, what real runs reach; None where a cache can hold what is read, so
            that memory bounds nothing.
        speculation: what a draft gives, None where nothing was said of one.
    """

    demand: Demand
    fit: Fit | None
    ceilings: tuple[float, float] | None
    reached: tuple[float, float] | None
    speculation: SpeculationForecast | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Everything that is predicted.

    Attributes:
        hardware: the hardware, in one line.
        memory: its memory, or why it is not known.
        ceiling: its bandwidth, or why it is not known.
        bandwidth_basis: where that comes from.
        kv_types: of the K and the V cache, for each model.
        draft: what the draft asks of memory.
        forecasts: one for each model.
    """

    hardware: str
    memory: MemoryCapacity | Failure
    ceiling: Ceiling | Failure
    bandwidth_basis: str
    kv_types: tuple[tuple[str, str], ...]
    draft: Demand | None
    forecasts: tuple[Forecast, ...]

    @property
    def fits(self) -> bool:
        """Whether every model fits; what cannot be told does not count as fitting."""
        return all(forecast.fit is not None and forecast.fit.fits for forecast in self.forecasts)
