"""Performance-regression tests for local LLM inference, with a verdict.

The public names are loaded on first use: pytest imports this package in every run of its user's
environment, and most of those runs measure nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_asperf.assertions import (
        assert_bandwidth_utilization,
        assert_faster,
        assert_monotonic,
        assert_no_regression,
        assert_pareto_optimal,
        assert_ppl_delta,
        assert_throughput,
    )
    from pytest_asperf.errors import AsperfError
    from pytest_asperf.fit_assertions import assert_fits
    from pytest_asperf.level_assertions import assert_degrades_less, assert_equivalent
    from pytest_asperf.speculation_assertions import (
        assert_lossless,
        assert_sd_gain,
        assert_sd_gains_more,
        assert_sd_loss,
    )
    from pytest_asperf.verdict import Outcome, Verdict

__version__ = "0.1.0"

__all__ = [
    "AsperfError",
    "Outcome",
    "Verdict",
    "__version__",
    "assert_bandwidth_utilization",
    "assert_degrades_less",
    "assert_equivalent",
    "assert_faster",
    "assert_fits",
    "assert_lossless",
    "assert_monotonic",
    "assert_no_regression",
    "assert_pareto_optimal",
    "assert_ppl_delta",
    "assert_sd_gain",
    "assert_sd_gains_more",
    "assert_sd_loss",
    "assert_throughput",
]

_HOMES = {
    "AsperfError": "errors",
    "Outcome": "verdict",
    "Verdict": "verdict",
    "assert_bandwidth_utilization": "assertions",
    "assert_degrades_less": "level_assertions",
    "assert_equivalent": "level_assertions",
    "assert_fits": "fit_assertions",
    "assert_lossless": "speculation_assertions",
    "assert_faster": "assertions",
    "assert_monotonic": "assertions",
    "assert_no_regression": "assertions",
    "assert_pareto_optimal": "assertions",
    "assert_ppl_delta": "assertions",
    "assert_sd_gain": "speculation_assertions",
    "assert_sd_gains_more": "speculation_assertions",
    "assert_sd_loss": "speculation_assertions",
    "assert_throughput": "assertions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
