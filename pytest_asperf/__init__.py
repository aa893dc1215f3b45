"""Performance-regression tests for local LLM inference, with a verdict.

Everything that a test needs is imported from here: the `assert_*` functions, the types of the
fixtures' values, verdicts and errors. Names are loaded on first use: pytest imports this package in
every run of its user's environment, and most of those runs measure nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_asperf.analysis.metrics import Comparison
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, VerdictError
    from pytest_asperf.api.disk import assert_disk
    from pytest_asperf.api.energy import Energy, EnergyReading, assert_energy
    from pytest_asperf.api.engines import Engines, assert_faster
    from pytest_asperf.api.figure import Figure, assert_figure
    from pytest_asperf.api.gate import (
        Gate,
        GatedWorkloads,
        assert_improvement,
        assert_no_regression,
    )
    from pytest_asperf.api.ladder import (
        Ladder,
        Perplexity,
        assert_ppl_delta,
    )
    from pytest_asperf.api.latency import Latency, LatencyReading, assert_latency
    from pytest_asperf.api.level_assertions import assert_degrades_less, assert_equivalent
    from pytest_asperf.api.measurement_context import Model, Reading
    from pytest_asperf.api.memory import Memory, MemoryReading, assert_fits
    from pytest_asperf.api.order_assertions import assert_monotonic, assert_pareto_optimal
    from pytest_asperf.api.pipelines import Pipelines, assert_same_output
    from pytest_asperf.api.placement import assert_placement
    from pytest_asperf.api.published import assert_as_published
    from pytest_asperf.api.ratio import assert_ratio
    from pytest_asperf.api.scores import Scores, TokenScores
    from pytest_asperf.api.speculation import PromptSpeculation, RemoteOverhead, Speculation
    from pytest_asperf.api.speculation_assertions import (
        assert_lossless,
        assert_sd_gain,
        assert_sd_gains_more,
        assert_sd_loss,
    )
    from pytest_asperf.api.steadiness import assert_steadier, assert_steady
    from pytest_asperf.api.throughput import (
        Throughput,
        assert_bandwidth_utilization,
        assert_throughput,
    )
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
    from pytest_asperf.measure.speculation_result import RoundCounts, SpeculationResult
    from pytest_asperf.published.findings import PublishedFinding

__version__ = "0.1.0"

__all__ = [
    "AsperfError",
    "BuildError",
    "CacheError",
    "Comparison",
    "ConfigError",
    "Energy",
    "EnergyReading",
    "EngineError",
    "Engines",
    "Estimate",
    "Figure",
    "Gate",
    "GatedWorkloads",
    "Hardware",
    "HardwareError",
    "Ladder",
    "Latency",
    "LatencyReading",
    "MeasurementError",
    "Memory",
    "MemoryReading",
    "Model",
    "ModelError",
    "Outcome",
    "PairedTest",
    "Perplexity",
    "Pipelines",
    "PromptSpeculation",
    "PublishedFinding",
    "Reading",
    "RemoteOverhead",
    "RoundCounts",
    "Scores",
    "Speculation",
    "SpeculationResult",
    "Subject",
    "Throughput",
    "TokenScores",
    "Verdict",
    "VerdictError",
    "__version__",
    "assert_as_published",
    "assert_bandwidth_utilization",
    "assert_degrades_less",
    "assert_disk",
    "assert_energy",
    "assert_equivalent",
    "assert_faster",
    "assert_figure",
    "assert_fits",
    "assert_improvement",
    "assert_latency",
    "assert_lossless",
    "assert_monotonic",
    "assert_no_regression",
    "assert_pareto_optimal",
    "assert_placement",
    "assert_ppl_delta",
    "assert_ratio",
    "assert_same_output",
    "assert_sd_gain",
    "assert_sd_gains_more",
    "assert_sd_loss",
    "assert_steadier",
    "assert_steady",
    "assert_throughput",
]

# By public name, the module that has it.
_HOMES = {
    "AsperfError": "pytest_asperf.errors",
    "BuildError": "pytest_asperf.errors",
    "CacheError": "pytest_asperf.errors",
    "Comparison": "pytest_asperf.analysis.metrics",
    "ConfigError": "pytest_asperf.errors",
    "Energy": "pytest_asperf.api.energy",
    "EnergyReading": "pytest_asperf.api.energy",
    "EngineError": "pytest_asperf.errors",
    "Engines": "pytest_asperf.api.engines",
    "Estimate": "pytest_asperf.analysis.stats.estimate",
    "Figure": "pytest_asperf.api.figure",
    "Gate": "pytest_asperf.api.gate",
    "GatedWorkloads": "pytest_asperf.api.gate",
    "Hardware": "pytest_asperf.hardware.in_force",
    "HardwareError": "pytest_asperf.errors",
    "Ladder": "pytest_asperf.api.ladder",
    "Latency": "pytest_asperf.api.latency",
    "LatencyReading": "pytest_asperf.api.latency",
    "MeasurementError": "pytest_asperf.errors",
    "Memory": "pytest_asperf.api.memory",
    "MemoryReading": "pytest_asperf.api.memory",
    "Model": "pytest_asperf.api.measurement_context",
    "ModelError": "pytest_asperf.errors",
    "Outcome": "pytest_asperf.analysis.verdict",
    "PairedTest": "pytest_asperf.analysis.stats.sequential",
    "Perplexity": "pytest_asperf.api.ladder",
    "Pipelines": "pytest_asperf.api.pipelines",
    "PromptSpeculation": "pytest_asperf.api.speculation",
    "PublishedFinding": "pytest_asperf.published.findings",
    "Reading": "pytest_asperf.api.measurement_context",
    "RemoteOverhead": "pytest_asperf.api.speculation",
    "RoundCounts": "pytest_asperf.measure.speculation_result",
    "Scores": "pytest_asperf.api.scores",
    "Speculation": "pytest_asperf.api.speculation",
    "SpeculationResult": "pytest_asperf.measure.speculation_result",
    "Subject": "pytest_asperf.analysis.verdict",
    "Throughput": "pytest_asperf.api.throughput",
    "TokenScores": "pytest_asperf.api.scores",
    "Verdict": "pytest_asperf.analysis.verdict",
    "VerdictError": "pytest_asperf.analysis.verdict",
    "assert_as_published": "pytest_asperf.api.published",
    "assert_bandwidth_utilization": "pytest_asperf.api.throughput",
    "assert_degrades_less": "pytest_asperf.api.level_assertions",
    "assert_disk": "pytest_asperf.api.disk",
    "assert_energy": "pytest_asperf.api.energy",
    "assert_equivalent": "pytest_asperf.api.level_assertions",
    "assert_faster": "pytest_asperf.api.engines",
    "assert_figure": "pytest_asperf.api.figure",
    "assert_fits": "pytest_asperf.api.memory",
    "assert_improvement": "pytest_asperf.api.gate",
    "assert_latency": "pytest_asperf.api.latency",
    "assert_lossless": "pytest_asperf.api.speculation_assertions",
    "assert_monotonic": "pytest_asperf.api.order_assertions",
    "assert_no_regression": "pytest_asperf.api.gate",
    "assert_pareto_optimal": "pytest_asperf.api.order_assertions",
    "assert_placement": "pytest_asperf.api.placement",
    "assert_ppl_delta": "pytest_asperf.api.ladder",
    "assert_ratio": "pytest_asperf.api.ratio",
    "assert_same_output": "pytest_asperf.api.pipelines",
    "assert_sd_gain": "pytest_asperf.api.speculation_assertions",
    "assert_sd_gains_more": "pytest_asperf.api.speculation_assertions",
    "assert_sd_loss": "pytest_asperf.api.speculation_assertions",
    "assert_steadier": "pytest_asperf.api.steadiness",
    "assert_steady": "pytest_asperf.api.steadiness",
    "assert_throughput": "pytest_asperf.api.throughput",
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
