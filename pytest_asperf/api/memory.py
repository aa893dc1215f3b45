"""The `memory` fixture and `assert_fits`: whether a model fits in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.api.measurement_context import (
    FixtureValue,
    Model,
    NoTruthValue,
    require_kind,
    settle,
)
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.errors import ConfigError, HardwareError, shown
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.in_force import in_force
from pytest_asperf.hardware.memory import memory_of
from pytest_asperf.report.rows import memory_row
from pytest_asperf.verdicts.memory import measured_fit, predicted_fit

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.measure.engine_memory import MemoryResult

_EXAMPLE: Final = "assert_fits(memory(4096), hardware)"


def assert_fits(
    model: Model | MemoryReading, hardware: Hardware | str, *, context: int | None = None
) -> Verdict:
    """Claim that a model and its KV cache fit in the memory of hardware.

    The weights must be below 60 % of a memory that the system shares, and with the KV cache below
    all of it. The `model` fixture is judged by sizes, for any hardware and without an engine. A
    reading (`memory(4096)`) is judged by what the engine allocated; the verdict compares that with
    the sizes.

    Args:
        model: the fixture, or a reading.
        hardware: the fixture, or a profile's name.
        context: tokens; 4096 by default, or the training's if that is less. A reading has its own.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no model and no measurement, a context that the model does not have, or one
            beside a reading.
        HardwareError: no such profile, or its memory is not known.
        ModelError: the model's sizes are not known.
    """
    __tracebackhide__ = True
    require_kind(model, (Model, MemoryReading), _EXAMPLE)
    if isinstance(hardware, str):
        hardware = in_force(hardware, detect(), option="assert_fits: hardware")
    memory = memory_of(hardware)
    if memory is None:
        raise HardwareError(
            f"the memory of {hardware.headline()} is not known",
            why="whether a model fits is a claim about it",
            remedy='name a profile, as in assert_fits(model, "m2ultra")',
        )
    if isinstance(model, MemoryReading):
        if context is not None:
            raise ConfigError(
                f"assert_fits: context={shown(context, 80)} beside a reading",
                why="the reading filled a context of its own",
                remedy="leave it out, or give the model fixture in place of the reading",
            )
        return settle(
            measured_fit(model.ref, model.result, hardware, memory), model.measurement.record
        )
    if context is not None:
        require_positions(context, where="assert_fits: context")
    return settle(predicted_fit(model.ref, hardware, memory, context), model.measurement.record)


@dataclass(frozen=True)
class MemoryReading(NoTruthValue):
    """The memory that a model takes with its context filled.

    Attributes:
        measured: what the engine allocated, for what only shows it.
    """

    ref: ModelRef
    measured: MemoryResult
    measurement: MeasurementContext

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        return f"<MemoryReading of {self.ref.title} at {self.measured.n_ctx} tokens>"

    @property
    def result(self) -> MemoryResult:
        """What the engine allocated."""
        self.measurement.record.used()
        return self.measured

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache, as the engine counts them."""
        return self.result.memory.kv


@dataclass(frozen=True)
class Memory(FixtureValue):
    """The `memory` fixture: call it with the context to fill."""

    ref: ModelRef
    measurement: MeasurementContext

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        return f"<Memory of {self.ref.title}>"

    def __call__(self, context: int) -> MemoryReading:
        """The memory that the engine has allocated once the context is full.

        Args:
            context: tokens.

        Raises:
            AsperfError: it cannot be measured.
        """
        require_positions(context, where="memory: context")
        result = self.measurement.runner.memory(self.ref, context)
        self.measurement.record(memory_row(result))
        return MemoryReading(self.ref, result, self.measurement)

    @property
    def with_f16_cache(self) -> Memory:
        """The same model with a KV cache in F16, to compare a quantised one with."""
        return replace(self, ref=self.ref.with_kv(EngineSettings()))


def require_positions(context: object, *, where: str) -> None:
    """Refuse a value that is not a length of a context."""
    if type(context) is not int or not 1 <= context < 2**31:
        raise ConfigError(
            f"{where}: {shown(context, 80)} is not a number of tokens",
            why="the KV cache grows with the context",
            remedy="write a whole number from 1, such as 4096",
        )
