"""What was measured in pairs, as plain data for the JSON report: times, rates and evidence."""

from __future__ import annotations

import math
from statistics import fmean, harmonic_mean, median
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.paired_runner import Pair, figure_of
from pytest_asperf.report.rows import proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.speculation_result import SpeculationResult


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
    return {
        "comparison": {
            "sides": list(names),
            "models": [side.model for side in result.ran],
            "settings": [side.requested.as_texts() for side in result.ran],
            "timed": workload.name,
            "of_rates": is_rate_ratio,
            **_sides(pairs.pairs, workload),
            "elapsed_s": pairs.elapsed_s,
            "machine": result.surroundings.watched.as_dict(),
            "pairs": [
                {
                    **_pair(pair, workload, sign),
                    "evidence_for_fail": fail,
                    "evidence_for_pass": accept,
                }
                for pair, (fail, accept) in zip(pairs.pairs, pairs.test.course, strict=True)
            ],
            "ran": [proof(side) for side in result.ran],
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
    # All tokens of the suite.
    generation = Workload("tg", 1)
    return {
        "sides": ["target alone", "with draft"],
        "models": [result.pairing.label] * 2,
        "settings": [result.ran[0].requested.as_texts()] * 2,
        "timed": "sd",
        **_sides(pairs, generation),
        # A coin is thrown for each prompt.
        "pairs": [_pair(pair, generation, 1) | {"candidate_first": None} for pair in pairs],
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


def side_texts(pairs: WorkloadPairs, *, in_total: bool = False) -> tuple[str, str, str]:
    """What baseline and candidate came to in the median, or in the total; and the unit."""
    workload = pairs.workload
    middle = (
        (harmonic_mean if workload.is_rate and not workload.metered else fmean)
        if in_total
        else median
    )
    base, candidate = (number_text(middle(side)) for side in _turns(pairs.pairs, workload))
    return base, candidate, workload.unit


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


def _sides(pairs: Sequence[Pair], workload: Workload) -> dict[str, Any]:
    return {"unit": workload.unit, "medians": [median(s) for s in _turns(pairs, workload)]}


def _turns(pairs: Sequence[Pair], workload: Workload) -> tuple[list[float], list[float]]:
    """Each side's turns, in J/token, tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs:
        both = (pair.baseline_costs, pair.candidate_costs)
        for side, costs, n_tokens in zip(sides, both, pair.n_tokens, strict=True):
            side.extend(figure_of(cost, n_tokens, workload) for cost in costs)
    return sides
