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
from pytest_asperf.analysis.guards.serving import (
    cached_prompt,
    client_bound,
    context_cut,
    failed_requests,
    fewer_tokens,
    first_chunk_early,
    joined_stamps,
    queueing,
    restarted,
    served_requests,
    short_ttft,
    tokens_in_chunks,
)
from pytest_asperf.analysis.guards.surroundings import (
    coefficient_of_variation,
    impure_window,
    joules_per_token,
    spread,
    throttled,
)

__all__ = [
    "Consequence",
    "GuardFinding",
    "broken_logits",
    "cached_prompt",
    "client_bound",
    "coefficient_of_variation",
    "context_cut",
    "counted_decode_errors",
    "counted_remote_errors",
    "decode_errors",
    "degenerate_output",
    "degenerate_tokens",
    "divergent_output",
    "estimate",
    "failed_requests",
    "fewer_tokens",
    "first_chunk_early",
    "first_divergence",
    "identical_to_baseline",
    "impossible_gain",
    "impure_window",
    "joined_stamps",
    "joules_per_token",
    "knows_nothing",
    "lossless",
    "path_mismatch",
    "predicted_against_measured",
    "queueing",
    "remote_errors",
    "restarted",
    "roofline_high",
    "roofline_low",
    "same_weights",
    "sd_bound",
    "served_requests",
    "short_ttft",
    "spread",
    "throttled",
    "token_accounting",
    "tokens_in_chunks",
    "unequal_work",
]
