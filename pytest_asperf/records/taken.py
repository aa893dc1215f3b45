"""Records of measurements and verdicts, from the results of lower rooms."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from statistics import fmean, harmonic_mean, median
from typing import Literal

from pytest_asperf.analysis.facts import ComparedChunks, ComparedPairs, MachineSeen, PairFacts
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import RawRun
from pytest_asperf.errors import AsperfError, MeasurementError
from pytest_asperf.measure.ab_ppl import PplComparison
from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
from pytest_asperf.measure.energy import EnergyResult
from pytest_asperf.measure.memory import MemoryResult
from pytest_asperf.measure.metered import PhaseEnergy
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import LevelResult, ThroughputResult
from pytest_asperf.measure.speculation_result import PromptRun, SpeculationResult
from pytest_asperf.records.kinds import (
    BrokenRecord,
    ChunkFacts,
    DivergenceFacts,
    EnergyRecord,
    MemoryRecord,
    PhaseFacts,
    PromptFacts,
    QuantRecord,
    RailFacts,
    RequestFacts,
    RunFacts,
    SpeculationRecord,
    ThroughputRecord,
)


def compared_pairs(
    pairs: WorkloadPairs, result: ABResult, names: tuple[str, str], *, is_rate_ratio: bool = False
) -> ComparedPairs:
    """The pairs of one workload in the order they ran, with the medians of both variants.

    Args:
        pairs: finished pairs.
        result: the comparison that they are of.
        names: of the variants that ran as baseline and as candidate.
        is_rate_ratio: True if the assertion is about baseline / candidate of the times, and not
            about candidate / baseline.
    """
    workload = pairs.workload
    sign = -1 if is_rate_ratio else 1
    base, candidate = (side.facts() for side in result.ran)
    return ComparedPairs(
        variants=names,
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
        processes=None if pairs.is_fresh else pairs.n_processes,
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
        variants=("target alone", "with draft"),
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
        raise ValueError("PPL was not requested")
    base, candidate = (side.facts() for side in comparison.ran)
    return ComparedChunks(
        ran=(base, candidate),
        text=comparison.text.name,
        text_sha256=comparison.text.sha256,
        n_chunks_total=test.n_chunks_total,
        delta_nll=tuple(test.values),
        elapsed_s=comparison.elapsed_s,
    )


def middles(pairs: WorkloadPairs, *, in_total: bool = False) -> tuple[float, float]:
    """Median or mean of the runs of baseline and candidate, in the workload's unit."""
    workload = pairs.workload
    if not in_total:
        return _medians(pairs.pairs, workload)
    mean: Callable[[list[float]], float] = (
        harmonic_mean if workload.is_rate and not workload.metered else fmean
    )
    base, candidate = map(mean, _turns(pairs.pairs, workload))
    return base, candidate


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
    """Each variant's run pairs, in J/token, tok/s or ms."""
    sides: tuple[list[float], list[float]] = ([], [])
    for pair in pairs:
        for side, figures in zip(sides, pair.each_figure(workload), strict=True):
            side.extend(figures)
    return sides


def broken_record(
    what: str, error: AsperfError, outcome: Literal["INVALID", "NOT RUN"] = "INVALID"
) -> BrokenRecord:
    """The record of a measurement that broke."""
    seen = error.machine if isinstance(error, MeasurementError) else None
    return BrokenRecord(
        outcome=outcome,
        subject=what,
        found=error.what,
        advice=(error.advice,),
        details=(error.why, *(error.detail or "").splitlines()),
        watched=seen if isinstance(seen, MachineSeen) else None,
    )


def throughput_record(
    result: ThroughputResult, guard_findings: Iterable[GuardFinding] = ()
) -> ThroughputRecord:
    """A throughput measurement, with every run's count and time, and the guards' findings."""
    workload, loads = result.workload, list(enumerate(result.loads))
    is_request = workload.kind == "request"
    is_shared = workload.users > 1 and workload.generates
    return ThroughputRecord(
        workload=workload.name,
        estimate=result.rate if workload.is_rate else result.time,
        prefill_share=result.prefill_share if is_request else None,
        effective_rate=result.rate if is_request else None,
        user_rate=result.user_rate if is_shared and not is_request else None,
        loads=len(loads),
        warm_ups=tuple(_run(load.warm_up, index) for index, load in loads if load.warm_up),
        runs=tuple(_run(run, index) for index, load in loads for run in load.runs),
        bytes_per_token=result.bytes_per_token,
        peak_rss_bytes=max(run.peak_rss_bytes for run in result.runs),
        guards=tuple(guard_findings),
        watched=result.watched.facts(),
        ran=result.ran.facts(),
        facts=result.ran.rows(),
    )


def _run(run: RawRun, load: int) -> RunFacts:
    """A run; of a server's users each request, timed from its start."""
    requests = tuple(
        RequestFacts(
            event_ns=tuple(ns - request.start_ns for ns in request.event_ns),
            n_prompt=request.n_prompt,
            n_cached=request.n_cached,
            n_output=request.n_output,
        )
        for request in run.requests
    )
    return RunFacts(n_tokens=run.n_tokens, elapsed_ns=run.elapsed_ns, load=load, requests=requests)


def quant_record(
    result: LevelResult, baseline: str, guard_findings: Iterable[GuardFinding], note: str
) -> QuantRecord:
    """A scored quantization, with each chunk's sums, the guards' findings, and remarks."""
    compared = result.comparison
    return QuantRecord(
        baseline=result.baseline_ran.facts(),
        baseline_name=baseline,
        text=result.text,
        ppl=compared.ppl.value,
        ppl_baseline=compared.ppl_base.value,
        delta_ppl=compared.delta_ppl,
        kld_mean=compared.kld,
        same_top=compared.same_top,
        size_bytes=result.size_bytes,
        peak_rss_bytes=result.peak_rss_bytes,
        chunks=tuple(
            ChunkFacts(
                n_tokens=len(chunk.nll),
                nll_sum=sum(chunk.nll),
                baseline_nll_sum=sum(base.nll),
                kld_sum=sum(chunk.kld),
            )
            for chunk, base in zip(result.chunks, result.baseline_chunks, strict=True)
        ),
        ran=result.ran.facts(),
        facts=result.rows(),
        guards=tuple(guard_findings),
        note=note,
    )


def memory_record(result: MemoryResult) -> MemoryRecord:
    """The memory of a model with its context filled."""
    return MemoryRecord(
        n_ctx=result.n_ctx,
        weights_bytes=result.memory.weights,
        kv_bytes=result.memory.kv,
        compute_bytes=result.memory.compute,
        peak_rss_bytes=result.peak_rss_bytes,
        ran=result.ran.facts(),
        facts=result.ran.rows(),
    )


def energy_record(
    result: EnergyResult, guard_findings: Iterable[GuardFinding], note: str
) -> EnergyRecord:
    """J per token of all measured rails, with each counter's windows, findings and remarks."""
    return EnergyRecord(
        workload=result.workload.name,
        joules_per_token=result.joules_per_token(),
        net_joules_per_token=result.joules_per_token(net=True),
        rails={
            rail: RailFacts(
                joules_per_token=result.joules_per_token(rail),
                net_joules_per_token=result.joules_per_token(rail, net=True),
                watts=result.watts(rail),
                idle_watts=result.idle.watts(rail),
            )
            for rail in result.rails
        },
        unmeasured={m.rail: m.reason for m in result.phases[-1].unmeasured},
        idle=_phase(result.idle),
        phases=tuple(map(_phase, result.phases)),
        guards=tuple(guard_findings),
        watched=result.watched.facts(),
        ran=result.ran.facts(),
        facts=result.ran.rows(),
        note=note,
    )


def _phase(phase: PhaseEnergy) -> PhaseFacts:
    return PhaseFacts(
        wall_s=phase.wall_s, busy_s=phase.busy_s, n_tokens=phase.n_tokens, windows=phase.windows
    )


def speculation_record(result: SpeculationResult) -> SpeculationRecord:
    """A measurement of speculation with all raw counts, and explanations of the gain."""
    pairing, counts = result.pairing, result.counts
    best_k, best_k_gain = result.best_k
    even = result.break_even_ratio
    remarks = list(result.watched.remarks_on_pairs)
    if result.interrupted:
        remarks.append(f"stopped after {result.gain.basis}")
    return SpeculationRecord(
        label=pairing.label,
        draft=pairing.draft.label if pairing.draft else None,
        target=pairing.target.label,
        k=pairing.k,
        temperature=pairing.temperature,
        n_tokens=pairing.n_tokens,
        categories=result.categories,
        gain=result.gain,
        alone_rate=result.alone_rate,
        speculative_rate=result.speculative_rate,
        predicted_gain=result.predicted_gain,
        ratio=result.ratio,
        break_even_ratio=even if even < math.inf else None,
        best_k=best_k,
        best_k_gain=best_k_gain,
        drafted=counts.drafted,
        accepted=counts.accepted,
        acceptance=counts.acceptance,
        acceptance_by_category=counts.acceptance_by_category,
        acceptance_by_position=counts.acceptance_by_position,
        mean_length=counts.mean_length,
        mean_length_by_category=counts.length_by_category,
        n_rounds=len(counts.rounds),
        drafting=result.drafting,
        verifying=result.verifying,
        draft_step=result.c,
        verify={str(size): cost for size, cost in result.verify.items()},
        time_split=result.time_split,
        rollback={name: context.rollback or "" for name, context in result.contexts.items()},
        contexts={name: context.verbatim for name, context in result.contexts.items()},
        draft_ran=result.ran[1].facts() if len(result.ran) > 1 else None,
        guards=tuple(result.guard_findings),
        divergences=tuple(
            DivergenceFacts(
                prompt=one.prompt,
                position=one.position,
                tokens=one.tokens,
                margin=one.margin.largest,
            )
            for one in result.divergences
        ),
        seed=result.seed,
        reloads=result.reloads,
        interrupted=result.interrupted,
        comparison=compared_suite(result),
        prompts=tuple(tuple(map(_prompt, pair.runs)) for pair in result.pairs),
        watched=result.watched.facts(),
        ran=result.ran[0].facts(),
        facts=result.ran[0].rows(),
        note="\n".join(f"{pairing.label}: {remark}" for remark in remarks),
    )


def _prompt(run: PromptRun) -> PromptFacts:
    return PromptFacts(
        prompt=run.prompt,
        speculative_first=run.speculative_first,
        alone_ns=run.alone.elapsed_ns,
        speculative_ns=run.speculative.elapsed_ns,
        n_tokens=len(run.speculative.tokens),
        rounds=tuple(map(astuple, run.speculative.rounds)),
    )
