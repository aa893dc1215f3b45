"""Facts of two sides that were compared: costs, rates and evidence of each pair, or chunks."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, harmonic_mean, median
from typing import TYPE_CHECKING

from pytest_asperf.analysis.facts import ComparedChunks, ComparedPairs, PairFacts
from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.paired_runner import Pair, figure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.speculation_result import SpeculationResult


def compared_pairs(
    pairs: WorkloadPairs,
    result: ABResult,
    names: tuple[str, str],
    *,
    is_rate_ratio: bool = False,
) -> ComparedPairs:
    """The pairs of one workload in the order they ran, with the medians of both sides.

    Args:
        pairs: finished pairs.
        result: the comparison that they are of.
        names: of the sides that ran as baseline and as candidate.
        is_rate_ratio: whether the claim is about baseline / candidate of the times, and not about
            candidate / baseline.
    """
    workload = pairs.workload
    sign = -1 if is_rate_ratio else 1
    base, candidate = (side.facts() for side in result.ran)
    return ComparedPairs(
        sides=names,
        models=(base.model, candidate.model),
        ran=(base, candidate),
        timed=workload.name,
        of_rates=is_rate_ratio,
        unit=workload.unit,
        medians=_medians(pairs.pairs, workload),
        cost_unit="nJ" if workload.metered else "ns",
        pairs=tuple(
            replace(_pair(pair, sign), evidence_for_fail=fail, evidence_for_pass=accept)
            for pair, (fail, accept) in zip(pairs.pairs, pairs.test.course, strict=True)
        ),
        elapsed_s=pairs.elapsed_s,
        watched=result.surroundings.watched.facts(),
    )


def compared_suite(result: SpeculationResult) -> ComparedPairs:
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
    generation = Workload("tg", 1)  # all tokens of the suite
    ran, label = result.ran[0].facts(), result.pairing.label
    return ComparedPairs(
        sides=("target alone", "with draft"),
        models=(label, label),
        ran=(ran, ran),
        timed="sd",
        unit=generation.unit,
        medians=_medians(pairs, generation),
        # Each prompt has a random order of its own.
        pairs=tuple(replace(_pair(pair, 1), candidate_first=None) for pair in pairs),
    )


def compared_chunks(comparison: PplComparison) -> ComparedChunks:
    """The chunks that two builds scored, in the order they were drawn."""
    test = comparison.test
    if test is None:
        raise ValueError("nobody asked for PPL")
    base, candidate = (side.facts() for side in comparison.ran)
    return ComparedChunks(
        ran=(base, candidate),
        text=comparison.text.name,
        text_sha256=comparison.text.sha256,
        n_chunks_total=test.n_chunks_total,
        delta_nll=tuple(test.values),
        elapsed_s=comparison.elapsed_s,
    )


def side_texts(pairs: WorkloadPairs, *, in_total: bool = False) -> tuple[str, str, str]:
    """Median or total of baseline and candidate as text, and the unit."""
    workload = pairs.workload
    middle = (
        (harmonic_mean if workload.is_rate and not workload.metered else fmean)
        if in_total
        else median
    )
    base, candidate = (number_text(middle(side)) for side in _turns(pairs.pairs, workload))
    return base, candidate, workload.unit


def _pair(pair: Pair, sign: int) -> PairFacts:
    return PairFacts(
        baseline=tuple(pair.baseline_costs),
        candidate=tuple(pair.candidate_costs),
        parts=pair.parts,
        n_tokens=pair.n_tokens,
        candidate_first=pair.candidate_first,
        ratio=math.exp(sign * pair.log_ratio),
        total_ratio=math.exp(sign * pair.total_log_ratio),
    )


def _medians(pairs: Sequence[Pair], workload: Workload) -> tuple[float, float]:
    base, candidate = map(median, _turns(pairs, workload))
    return base, candidate


def _turns(pairs: Sequence[Pair], workload: Workload) -> tuple[list[float], list[float]]:
    """Each side's turns, in J/token, tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs:
        both = (pair.baseline_costs, pair.candidate_costs)
        for side, costs, n_tokens in zip(sides, both, pair.n_tokens, strict=True):
            side.extend(figure_of(cost, n_tokens, workload) for cost in costs)
    return sides
