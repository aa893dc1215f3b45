"""What was measured in pairs, as plain data for the JSON report: times, rates and evidence."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.paired_runner import Pair


def pair_data(
    pairs: WorkloadPairs,
    result: ABResult,
    names: tuple[str, str],
    *,
    is_rate_ratio: bool = False,
) -> dict[str, Any]:
    """The pairs of one workload in the order they ran, with what each side came to.

    Args:
        pairs: finished pairs.
        result: the comparison that they are of.
        names: of the sides that ran as baseline and as candidate.
        is_rate_ratio: whether the claim is about baseline / candidate of the times, and not about
            candidate / baseline.
    """
    workload = pairs.workload
    sign = -1 if is_rate_ratio else 1
    course = pairs.test.course
    return {
        "comparison": {
            "sides": list(names),
            "models": [side.model for side in result.ran],
            "settings": [side.requested.as_texts() for side in result.ran],
            "timed": workload.name,
            "unit": "J/token" if workload.metered else "tok/s" if workload.is_rate else "ms",
            "medians": list(_medians(pairs)),
            "elapsed_s": pairs.elapsed_s,
            "machine": result.surroundings.watched.as_dict(),
            "pairs": [
                {
                    **_pair(pair, workload, sign),
                    "evidence_for_fail": fail,
                    "evidence_for_pass": accept,
                }
                for pair, (fail, accept) in zip(pairs.pairs, course, strict=True)
            ],
        }
    }


def chunk_data(comparison: PplComparison) -> dict[str, Any]:
    """The chunks that two builds scored, in the order they were drawn."""
    test = comparison.test
    return {
        "comparison": {
            "sides": ["baseline", "candidate"],
            "text": comparison.text.name,
            "text_sha256": comparison.text.sha256,
            "n_chunks_total": test.n_chunks_total,
            "elapsed_s": comparison.elapsed_s,
            "delta_nll": list(test.values),
        }
    }


def _pair(pair: Pair, workload: Workload, sign: int) -> dict[str, Any]:
    unit = "nj" if workload.metered else "ns"
    return {
        f"baseline_{unit}": list(pair.baseline_costs),
        f"candidate_{unit}": list(pair.candidate_costs),
        "parts": pair.parts,
        "n_tokens": list(pair.n_tokens),
        "candidate_first": pair.candidate_first,
        "ratio": math.exp(sign * pair.log_ratio),
        "total_ratio": math.exp(sign * pair.total_log_ratio),
    }


def _medians(pairs: WorkloadPairs) -> tuple[float, float]:
    """The median of each side's turns, in J/token, tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs.pairs:
        both = (pair.baseline_costs, pair.candidate_costs)
        for side, costs, n_tokens in zip(sides, both, pair.n_tokens, strict=True):
            side.extend(_shown(pairs.workload, cost, n_tokens) for cost in costs)
    return median(sides[0]), median(sides[1])


def _shown(workload: Workload, cost: int, n_tokens: int) -> float:
    if workload.metered:
        return cost / 1e9 / n_tokens
    return 1e9 * n_tokens / cost if workload.is_rate else cost / 1e6
