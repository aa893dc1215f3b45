"""Is a measurement valid? Each guard is a function of plain values: a `GuardFinding`, or None.

What each catches, by which rule and why is listed in docs/guards.md.
"""

from pytest_asperf.analysis.guards.arms import (
    estimate,
    identical_to_baseline,
    path_mismatch,
    same_weights,
    unequal_work,
)
from pytest_asperf.analysis.guards.bounds import (
    predicted_against_measured,
    roofline_high,
    roofline_low,
    sd_bound,
    token_accounting,
)
from pytest_asperf.analysis.guards.energy import (
    counter_disagrees,
    dead_counter,
    idle_gaps,
    idle_rails,
    rail_coverage,
    restarted_counter,
    short_window,
)
from pytest_asperf.analysis.guards.guard_finding import Consequence, GuardFinding
from pytest_asperf.analysis.guards.outputs import (
    broken_logits,
    counted_decode_errors,
    counted_remote_errors,
    decode_errors,
    degenerate_output,
    degenerate_tokens,
    divergent_output,
    first_divergence,
    remote_errors,
)
from pytest_asperf.analysis.guards.scores import impossible_gain, knows_nothing, lossless
from pytest_asperf.analysis.guards.surroundings import (
    coefficient_of_variation,
    host_busy,
    impure_window,
    joules_per_token,
    spread,
    throttled,
)

__all__ = [
    "Consequence",
    "GuardFinding",
    "broken_logits",
    "coefficient_of_variation",
    "counted_decode_errors",
    "counted_remote_errors",
    "counter_disagrees",
    "dead_counter",
    "decode_errors",
    "degenerate_output",
    "degenerate_tokens",
    "divergent_output",
    "estimate",
    "first_divergence",
    "host_busy",
    "identical_to_baseline",
    "idle_gaps",
    "idle_rails",
    "impossible_gain",
    "impure_window",
    "joules_per_token",
    "knows_nothing",
    "lossless",
    "path_mismatch",
    "predicted_against_measured",
    "rail_coverage",
    "remote_errors",
    "restarted_counter",
    "roofline_high",
    "roofline_low",
    "same_weights",
    "sd_bound",
    "short_window",
    "spread",
    "throttled",
    "token_accounting",
    "unequal_work",
]
