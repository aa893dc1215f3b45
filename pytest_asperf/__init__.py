"""Performance-regression tests for local LLM inference, with a verdict.

Everything that a test needs is imported from here: the `assert_*` functions, the types of the
fixtures' values, verdicts and errors. Names are loaded on first use: pytest imports this package in
every run of its user's environment, and most of those runs measure nothing.
"""

from __future__ import annotations

import importlib
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
    from pytest_asperf.api.gate import Gate, GatedWorkloads, GateSide, assert_no_regression
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
    "GateSide",
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

# By public name, the module that has it.
_HOMES = {
    "AllocatedMemory": "pytest_asperf.api.memory",
    "AsperfError": "pytest_asperf.errors",
    "BuildError": "pytest_asperf.errors",
    "CacheError": "pytest_asperf.errors",
    "ConfigError": "pytest_asperf.errors",
    "Energy": "pytest_asperf.api.energy",
    "EnergyFigure": "pytest_asperf.api.energy",
    "EngineError": "pytest_asperf.errors",
    "Estimate": "pytest_asperf.analysis.stats.estimate",
    "Figure": "pytest_asperf.api.quantity",
    "Gate": "pytest_asperf.api.gate",
    "GateSide": "pytest_asperf.api.gate",
    "GatedWorkloads": "pytest_asperf.api.gate",
    "Hardware": "pytest_asperf.hardware.in_force",
    "HardwareError": "pytest_asperf.errors",
    "Ladder": "pytest_asperf.api.ladder",
    "Latency": "pytest_asperf.api.latency",
    "MeasurementError": "pytest_asperf.errors",
    "Memory": "pytest_asperf.api.memory",
    "Model": "pytest_asperf.api.model",
    "ModelError": "pytest_asperf.errors",
    "Outcome": "pytest_asperf.analysis.outcome",
    "PairedTest": "pytest_asperf.analysis.stats.sequential",
    "PromptSpeculation": "pytest_asperf.api.speculation",
    "Quant": "pytest_asperf.api.ladder",
    "Quantity": "pytest_asperf.api.quantity",
    "Rate": "pytest_asperf.api.throughput",
    "RemoteOverhead": "pytest_asperf.api.speculation",
    "Speculation": "pytest_asperf.api.speculation",
    "SpeculationResult": "pytest_asperf.measure.speculation_result",
    "Subject": "pytest_asperf.analysis.verdict",
    "Throughput": "pytest_asperf.api.throughput",
    "Time": "pytest_asperf.api.latency",
    "TokenScores": "pytest_asperf.api.scored",
    "Verdict": "pytest_asperf.analysis.verdict",
    "VerdictError": "pytest_asperf.report.verdict_text",
    "assert_as_published": "pytest_asperf.published.as_published",
    "assert_fits": "pytest_asperf.api.memory",
    "assert_lossless": "pytest_asperf.api.assertions",
    "assert_monotonic": "pytest_asperf.api.assertions",
    "assert_no_regression": "pytest_asperf.api.gate",
    "assert_pareto_optimal": "pytest_asperf.api.assertions",
    "assert_ppl_delta": "pytest_asperf.api.ladder",
    "assert_sd_gain": "pytest_asperf.api.assertions",
}

if not TYPE_CHECKING:  # or a misspelt import would pass every type checker

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
