"""The `memory` fixture, and `assert_fits`: whether a model fits in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Subject, Verdict
from pytest_asperf.api.measurement_context import FixtureValue, ModelUnderTest, require_kind
from pytest_asperf.api.model import Model
from pytest_asperf.api.quantity import Figure, Found, settle
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.errors import ConfigError, HardwareError, shown
from pytest_asperf.hardware.in_force import Hardware, detect, in_force, memory_of
from pytest_asperf.measure.memory import MemoryExperiment, MemoryResult
from pytest_asperf.records.taken import memory_record
from pytest_asperf.verdicts.memory import measured_fit, predicted_fit

_GIB: Final = 2**30
_EXAMPLE: Final = "assert_fits(memory(4096), hardware)"


@dataclass(frozen=True, eq=False, repr=False)
class AllocatedMemory(Figure):
    """The memory of a model with its context filled, GiB, by the engine's own count."""

    variant: ModelUnderTest
    context: int

    example: ClassVar = 'assert memory(4096) <= "8 GiB"'

    @property
    def weights(self) -> Figure:
        """The memory of the weights, GiB."""
        return self._part("weights", lambda result: result.memory.weights)

    @property
    def kv(self) -> Figure:
        """The memory of the KV cache and the state of recurrent layers, GiB."""
        return self._part("KV cache", lambda result: result.memory.kv)

    @property
    def compute(self) -> Figure:
        """The memory of the buffers of one step, GiB."""
        return self._part("compute buffers", lambda result: result.memory.compute)

    @property
    def peak_rss(self) -> Figure:
        """The peak resident memory of the engine's process, GiB, without a GPU's memory."""
        return self._part("peak RSS", lambda result: result.peak_rss_bytes)

    def _part(self, what: str, of: Callable[[MemoryResult], int]) -> Figure:
        return Figure(
            f"{what} of {self.name}",
            "GiB",
            self.record,
            lambda: _found(self.variant, self.context, f"{what} of ", of),
            about=self.about,
        )


def measured_memory(variant: ModelUnderTest, context: int) -> MemoryResult:
    """The memory that the engine has allocated once the context is full, noted for the report."""
    result = variant.measurement.runner.measure((variant.ref,), MemoryExperiment(context))
    variant.measurement.record(memory_record(result))
    return result


def _found(
    variant: ModelUnderTest, context: int, what: str, of: Callable[[MemoryResult], int]
) -> Found:
    result = measured_memory(variant, context)
    name = f"{what}memory of {result.ran.model} at {context} tokens"
    size = Estimate.exact(of(result) / _GIB, "GiB")
    return Found(size, Subject(name, "live", result.ran.rows()))


def memory_at(variant: ModelUnderTest, context: int) -> AllocatedMemory:
    """The memory of a variant at a length of the context, in tokens."""
    require_positions(context, where="memory: context")
    name = f"memory of {variant.title} at {context} tokens"

    def measure() -> Found:
        return _found(variant, context, "", lambda result: result.memory.total)

    record, about = variant.measurement.record, variant.ref
    return AllocatedMemory(name, "GiB", record, measure, variant, context, about=about)


@dataclass(frozen=True)
class Memory(FixtureValue):
    """The `memory` fixture: call it with the context to fill."""

    variant: ModelUnderTest

    example: ClassVar = AllocatedMemory.example

    def __repr__(self) -> str:
        return f"<Memory of {self.variant.title}>"

    def __call__(
        self,
        context: int,
        *,
        model: str | None = None,
        engine: str | None = None,
        quant: str | None = None,
    ) -> AllocatedMemory:
        """The memory that the engine has allocated once the context is full.

        Args:
            context: tokens.
            model: another model than the test's, by its spec.
            engine: another engine; the quantization is the nearest that it has.
            quant: another quantization.

        Raises:
            ConfigError: no such length, model, engine or quantization.
        """
        return memory_at(self.variant.other(model, engine, quant), context)

    @property
    def with_f16_cache(self) -> Memory:
        """The same model with a KV cache in F16, to compare with a quantized one."""
        ref = self.variant.ref.with_kv(EngineSettings())
        return replace(self, variant=replace(self.variant, ref=ref))


def assert_fits(
    model: Model | AllocatedMemory, hardware: Hardware | str, *, context: int | None = None
) -> Verdict:
    """Assert that a model and its KV cache fit into the hardware's memory.

    The weights must be below 60 % of a memory that the system shares, and with the KV cache below
    all of it; on this Mac below Metal's working set, unless all layers stay on the CPU. The `model`
    fixture is judged by sizes, for any hardware and without an engine. `memory(4096)` is judged by
    the engine's allocations; the verdict compares them with the sizes.

    Args:
        model: the fixture, or measured memory.
        hardware: the fixture, or a profile's name.
        context: tokens; 4096 by default, or the training context if that is shorter. Measured
            memory has its own.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no model and no measurement, a context that the model does not have, or one
            in addition to a measurement's.
        HardwareError: no such profile, or its memory size is unknown.
        ModelError: the model's sizes are unknown.
    """
    __tracebackhide__ = True
    require_kind(model, (Model, AllocatedMemory), _EXAMPLE)
    if isinstance(hardware, str):
        hardware = in_force(hardware, detect())
    capacity = memory_of(hardware)
    if capacity is None:
        raise HardwareError(
            f"the memory of {hardware.headline()} is not known",
            why="whether a model fits depends on it",
            remedy='name a profile, as in assert_fits(model, "m2ultra")',
        )
    capacity = capacity.holding(model.variant.ref.spec.settings.n_gpu_layers)
    record = model.variant.measurement.record
    if isinstance(model, AllocatedMemory):
        if context is not None:
            raise ConfigError(
                f"assert_fits: context={shown(context, 80)} and a measurement",
                why="the measurement filled a context of its own",
                remedy="leave it out, or give the model fixture instead of the measurement",
            )
        result = measured_memory(model.variant, model.context)
        return settle(measured_fit(model.variant.ref, result, hardware, capacity), record)
    if context is not None:
        require_positions(context, where="assert_fits: context")
    return settle(predicted_fit(model.variant.ref, hardware, capacity, context), record)


def require_positions(context: object, *, where: str) -> None:
    """Reject a value that is not a length of a context."""
    if type(context) is not int or not 1 <= context < 2**31:
        raise ConfigError(
            f"{where}: {shown(context, 80)} is not a number of tokens",
            why="the KV cache grows with the context",
            remedy="write a whole number from 1, such as 4096",
        )
