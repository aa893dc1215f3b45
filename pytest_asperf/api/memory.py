"""assert_fits: judge whether a model fits in the memory of hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.api.assertions import settle
from pytest_asperf.api.handles import MemoryReading, require_positions
from pytest_asperf.errors import ConfigError, HardwareError, shown
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.in_force import in_force
from pytest_asperf.hardware.memory import memory_of
from pytest_asperf.verdicts.memory import measured_fit, predicted_fit

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.handles import Model
    from pytest_asperf.hardware.in_force import Hardware


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

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: a context that the model does not have, or one beside a reading.
        HardwareError: no such profile, or its memory is not known.
        ModelError: the model's sizes are not known.
    """
    __tracebackhide__ = True
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
        return settle(measured_fit(model, hardware, memory), model.measurement)
    if context is not None:
        require_positions(context, where="assert_fits: context")
    return settle(predicted_fit(model, hardware, memory, context), model.measurement)
