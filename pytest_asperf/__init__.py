"""Performance-regression tests for local LLM inference, with a verdict.

Everything that a test needs is imported from here: the `assert_*` functions, the types of the
fixtures' values, verdicts and errors. Names are loaded on first use: pytest imports this package in
every run of its user's environment, and most of those runs measure nothing.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_asperf.analysis.outcome import Outcome
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.analysis.verdict import Subject, Verdict
    from pytest_asperf.api.assertions import (
        assert_lossless,
        assert_monotonic,
        assert_pareto_optimal,
        assert_sd_gain,
    )
    from pytest_asperf.api.energy import Energy, EnergyFigure
    from pytest_asperf.api.gate import Gate, GatedBuild, GatedWorkloads, assert_no_regression
    from pytest_asperf.api.ladder import Ladder, Quant, assert_ppl_delta
    from pytest_asperf.api.latency import Latency, Time
    from pytest_asperf.api.memory import AllocatedMemory, Memory, assert_fits
    from pytest_asperf.api.model import Model
    from pytest_asperf.api.quantity import Figure, Quantity
    from pytest_asperf.api.scored import TokenScores
    from pytest_asperf.api.speculation import PromptSpeculation, RemoteOverhead, Speculation
    from pytest_asperf.api.throughput import Rate, Throughput
    from pytest_asperf.errors import (
        AsperfError,
        BuildError,
        CacheError,
        ConfigError,
        EngineError,
        HardwareError,
        MeasurementError,
        ModelError,
    )
    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.measure.speculation_result import SpeculationResult
    from pytest_asperf.published.as_published import assert_as_published
    from pytest_asperf.report.verdict_text import VerdictError

__version__ = "0.1.0"

__all__ = [
    "AllocatedMemory",
    "AsperfError",
    "BuildError",
    "CacheError",
    "ConfigError",
    "Energy",
    "EnergyFigure",
    "EngineError",
    "Estimate",
    "Figure",
    "Gate",
    "GatedBuild",
    "GatedWorkloads",
    "Hardware",
    "HardwareError",
    "Ladder",
    "Latency",
    "MeasurementError",
    "Memory",
    "Model",
    "ModelError",
    "Outcome",
    "PairedTest",
    "PromptSpeculation",
    "Quant",
    "Quantity",
    "Rate",
    "RemoteOverhead",
    "Speculation",
    "SpeculationResult",
    "Subject",
    "Throughput",
    "Time",
    "TokenScores",
    "Verdict",
    "VerdictError",
    "__version__",
    "assert_as_published",
    "assert_fits",
    "assert_lossless",
    "assert_monotonic",
    "assert_no_regression",
    "assert_pareto_optimal",
    "assert_ppl_delta",
    "assert_sd_gain",
]

# By module, the public names that it has.
_NAMES = {
    "analysis.outcome": "Outcome",
    "analysis.stats.estimate": "Estimate",
    "analysis.stats.sequential": "PairedTest",
    "analysis.verdict": "Subject Verdict",
    "api.assertions": "assert_lossless assert_monotonic assert_pareto_optimal assert_sd_gain",
    "api.energy": "Energy EnergyFigure",
    "api.gate": "Gate GatedBuild GatedWorkloads assert_no_regression",
    "api.ladder": "Ladder Quant assert_ppl_delta",
    "api.latency": "Latency Time",
    "api.memory": "AllocatedMemory Memory assert_fits",
    "api.model": "Model",
    "api.quantity": "Figure Quantity",
    "api.scored": "TokenScores",
    "api.speculation": "PromptSpeculation RemoteOverhead Speculation",
    "api.throughput": "Rate Throughput",
    "errors": "AsperfError BuildError CacheError ConfigError EngineError HardwareError "
    "MeasurementError ModelError",
    "hardware.in_force": "Hardware",
    "measure.speculation_result": "SpeculationResult",
    "published.as_published": "assert_as_published",
    "report.verdict_text": "VerdictError",
}
_HOMES = {
    name: f"pytest_asperf.{module}" for module, names in _NAMES.items() for name in names.split()
}

if not TYPE_CHECKING:  # or a misspelt import would pass every type checker
    if find_spec("pytest_asperf.published") is None:  # it is a plugin
        __all__ = [name for name in __all__ if name != "assert_as_published"]

    def __getattr__(name):
        """Load a public name from the module that has it."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted(__all__)
