"""What was measured in pairs, as plain data for the JSON report: times, rates and evidence."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.report.rows import proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import WorkloadPairs
    from pytest_asperf.measure.results import Provenance
    from pytest_asperf.measure.speculation_result import SpeculationResult


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
    sign = -1 if is_rate_ratio else 1
    return {
        "comparison": {
            "sides": list(names),
            "models": [side.model for side in ran],
            "settings": [side.requested.as_texts() for side in ran],
            "timed": pairs.workload.name,
            "of_rates": is_rate_ratio,
            **_sides(pairs.pairs, is_rate=pairs.workload.is_rate),
            "elapsed_s": pairs.elapsed_s,
            "pairs": [
                {**_pair(pair, sign), "evidence_for_fail": fail, "evidence_for_pass": accept}
                for pair, (fail, accept) in zip(pairs.pairs, pairs.test.course, strict=True)
            ],
            "ran": [proof(side) for side in ran],
        }
    }


def suite_data(result: SpeculationResult) -> dict[str, Any]:
    """The pairs of a measurement of speculation: the whole suite, without and with the draft."""
    pairs = [
        Pair(
            (pair.alone_ns,),
            (pair.speculative_ns,),
            candidate_first=False,
            n_tokens=(
                sum(len(run.alone.tokens) for run in pair.runs),
                sum(len(run.speculative.tokens) for run in pair.runs),
            ),
        )
        for pair in result.pairs
    ]
    return {
        "sides": ["target alone", "with draft"],
        "models": [result.pairing.label] * 2,
        "settings": [result.ran[0].requested.as_texts()] * 2,
        "timed": "sd",
        **_sides(pairs, is_rate=True),
        # A coin is thrown for each prompt.
        "pairs": [_pair(pair, 1) | {"candidate_first": None} for pair in pairs],
        "ran": [proof(result.ran[0])] * 2,
    }


def chunk_data(comparison: PplComparison) -> dict[str, Any]:
    """The chunks that two builds scored, in the order they were drawn."""
    test = comparison.test
    return {
        "comparison": {
            "sides": ["baseline", "candidate"],
            "models": [side.model for side in comparison.ran],
            "text": comparison.text.name,
            "text_sha256": comparison.text.sha256,
            "n_chunks_total": test.n_chunks_total,
            "elapsed_s": comparison.elapsed_s,
            "delta_nll": list(test.values),
            "ran": [proof(side) for side in comparison.ran],
        }
    }


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


def _sides(pairs: Sequence[Pair], *, is_rate: bool) -> dict[str, Any]:
    """The median of each side's turns, in tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs:
        runs_ns = (pair.baseline_runs_ns, pair.candidate_runs_ns)
        for side, times_ns, n_tokens in zip(sides, runs_ns, pair.n_tokens, strict=True):
            side.extend(1e9 * n_tokens / ns if is_rate else ns / 1e6 for ns in times_ns)
    return {"unit": "tok/s" if is_rate else "ms", "medians": [median(side) for side in sides]}
