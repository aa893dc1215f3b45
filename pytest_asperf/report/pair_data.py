"""What was measured in pairs, as plain data for the JSON report: times, rates and evidence."""

from __future__ import annotations

import math
from statistics import fmean, harmonic_mean, median
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import WorkloadPairs
    from pytest_asperf.measure.paired_runner import Pair
    from pytest_asperf.measure.results import Provenance


def pair_data(
    pairs: WorkloadPairs,
    ran: Sequence[Provenance],
    names: tuple[str, str],
    *,
    is_rate_ratio: bool = False,
) -> dict[str, Any]:
    """The pairs of one workload in the order they ran, with what each side came to.

    Args:
        pairs: finished pairs.
        ran: proof of path of both, baseline first.
        names: of the sides that ran as baseline and as candidate.
        is_rate_ratio: whether the claim is about baseline / candidate of the times, and not about
            candidate / baseline.
    """
    is_rate = pairs.workload.is_rate
    sign = -1 if is_rate_ratio else 1
    course = pairs.test.course
    return {
        "comparison": {
            "sides": list(names),
            "models": [side.model for side in ran],
            "settings": [side.requested.as_texts() for side in ran],
            "timed": pairs.workload.name,
            "unit": "tok/s" if is_rate else "ms",
            "medians": list(map(median, _turns(pairs, is_rate=is_rate))),
            "elapsed_s": pairs.elapsed_s,
            "pairs": [
                {**_pair(pair, sign), "evidence_for_fail": fail, "evidence_for_pass": accept}
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


def side_texts(pairs: WorkloadPairs, *, in_total: bool = False) -> tuple[str, str, str]:
    """What baseline and candidate came to in the median, or in the total time; and the unit."""
    is_rate = pairs.workload.is_rate
    middle = (harmonic_mean if is_rate else fmean) if in_total else median
    base, candidate = (number_text(middle(t)) for t in _turns(pairs, is_rate=is_rate))
    return base, candidate, "tok/s" if is_rate else "ms"


def _pair(pair: Pair, sign: int) -> dict[str, Any]:
    return {
        "baseline_ns": list(pair.baseline_runs_ns),
        "candidate_ns": list(pair.candidate_runs_ns),
        "parts": pair.parts,
        "n_tokens": list(pair.n_tokens),
        "candidate_first": pair.candidate_first,
        "ratio": math.exp(sign * pair.log_ratio),
        "total_ratio": math.exp(sign * pair.total_log_ratio),
    }


def _turns(pairs: WorkloadPairs, *, is_rate: bool) -> tuple[list[float], list[float]]:
    """Each side's turns, in tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs.pairs:
        runs_ns = (pair.baseline_runs_ns, pair.candidate_runs_ns)
        for side, times_ns, n_tokens in zip(sides, runs_ns, pair.n_tokens, strict=True):
            side.extend(1e9 * n_tokens / ns if is_rate else ns / 1e6 for ns in times_ns)
    return sides
