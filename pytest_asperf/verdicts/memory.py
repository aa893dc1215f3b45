"""Verdicts on memory: if a model fits, and if one build uses more than another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.capacity import Demand, Fit, MemoryCapacity, fit, judge_fit
from pytest_asperf.analysis.combined_verdict import joined
from pytest_asperf.analysis.facts import ComparedSides
from pytest_asperf.analysis.guards import predicted_against_measured
from pytest_asperf.analysis.limit_verdict import judge_limit
from pytest_asperf.analysis.stats.estimate import Estimate, memory_text, number_text, percent_text
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.config.engine_settings import KV_BYTES_PER_ELEMENT, kv_bytes_per_element
from pytest_asperf.errors import ConfigError, ModelError
from pytest_asperf.modelfiles.sizes import KvCache, demand_of
from pytest_asperf.verdicts.paired import build_subject, differences

if TYPE_CHECKING:
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.measure.memory import HeldMemory, MemoryComparison, MemoryResult

#: Both engines make room for positions in steps of so many: `GGML_PAD(n_ctx, 256)` in
#: llama-context.cpp, `KVCache.step` in mlx-lm's cache.py.
_POSITIONS_STEP: Final = 256
_MIB: Final = 2**20
#: Growth that is accepted whatever the tolerance, bytes: an engine's count is of whole buffers, and
#: resident memory differs between processes of one build (docs/benchmarks.md).
_COUNTED_SLACK: Final = _MIB
_RSS_SLACK: Final = 8 * _MIB
_TOO_LARGE: Final = "use a smaller quantization, a shorter context or a quantized KV cache"


def predicted_fit(
    ref: ModelRef, hardware: Hardware, memory: MemoryCapacity, context: int | None
) -> Verdict:
    """Judge by a model's sizes whether it fits in a context that it was trained on."""
    type_k, type_v = ref.spec.settings.kv_types
    per_element = kv_bytes_per_element(type_k), kv_bytes_per_element(type_v)
    demand = demand_of(ref, KvCache(context, per_element))
    if demand.n_ctx_train is not None and demand.context > demand.n_ctx_train:
        raise ConfigError(
            f"assert_fits: a context of {demand.context} tokens, and {ref.label} was trained on "
            f"{demand.n_ctx_train}",
            why="what a model does beyond its context is not what its users see",
            remedy=f"use at most {demand.n_ctx_train}",
        )
    ran = (("sizes", demand.basis), ("KV cache", f"K {type_k}, V {type_v}"))
    subject = _subject(ref.title, demand.context, hardware)
    subject = replace(subject, source="predicted", ran=ran)
    return replace(judge_fit(fit(memory, [demand]), subject), rests_on="sizes")


def measured_fit(
    ref: ModelRef, result: MemoryResult, hardware: Hardware, memory: MemoryCapacity
) -> Verdict:
    """Judge by an engine's allocations if a model fits.

    If its sizes are known, the prediction from them is compared with that.
    """
    allocated = result.memory
    verdict = judge_fit(
        Fit(memory, allocated.weights, allocated.kv, allocated.compute),
        replace(_subject(result.ran.model, result.n_ctx, hardware), ran=result.ran.rows()),
    )
    verdict = replace(verdict, rests_on="allocated")
    try:
        demand = expected_demand(ref, result)
    except ModelError as err:
        return replace(verdict, details=(*verdict.details, f"not predicted: {err.what}"))
    pairs = ((demand.weights_bytes, allocated.weights), (demand.kv_bytes, allocated.kv))
    known = [(a / 2**20, b / 2**20) for a, b in pairs if a > 0 and b > 0]
    guard_findings = [predicted_against_measured(a, b, unit="MiB") for a, b in known]
    sizes = " and ".join(f"{number_text(a, 4)} and {number_text(b, 4)} MiB" for a, b in known)
    verdict = replace(verdict, details=(*verdict.details, f"predicted and allocated: {sizes}"))
    return guarded(verdict, filter(None, guard_findings))


def memory_verdict(comparison: MemoryComparison, tolerance: float) -> Verdict:
    """The verdict on the memory of two builds, by the engine's count and by their processes.

    Args:
        comparison: both builds' bytes.
        tolerance: growth that is accepted, a fraction, in addition to the difference of equal
            builds.
    """
    subject = replace(
        build_subject(f"memory at {comparison.n_ctx} tokens,", comparison.ran, "larger"),
        if_failed="the candidate needs more memory: look for a cache of another type or size, "
        "buffers that grew, or weights that are copied",
    )
    sizes = _sizes(comparison.base), _sizes(comparison.candidate)
    figures, verdicts, rows = [], [], []
    for (label, slack, base), (_, _, candidate) in zip(*sizes, strict=True):
        growth = Estimate.exact((candidate - base) / _MIB, "MiB")
        limit = (base * tolerance + slack) / _MIB
        figures.append((f"growth of {label}", growth))
        verdicts.append((label, judge_limit(growth, "<=", limit, subject)))
        rows.append(f"{label}: {memory_text(base)} → {memory_text(candidate)}")
    threshold = (
        f"at most +{percent_text(tolerance)} of each, and {memory_text(_COUNTED_SLACK)} by the "
        f"engine's count or {memory_text(_RSS_SLACK)} of its process"
    )
    verdict = joined(verdicts, tuple(figures), subject, threshold)
    grown = [
        row for row, (_, one) in zip(rows, verdicts, strict=True) if one.outcome is not Outcome.PASS
    ]
    counted = (comparison.base.counted.total, comparison.candidate.counted.total)
    brief = " → ".join(map(memory_text, counted))
    measured = "; ".join(grown) or f"{brief} by the engine's count, {rows[-2]}, {rows[-1]}"
    return replace(
        verdict,
        measured=measured,
        brief="; ".join(grown) or brief,
        bound=f"≤ +{percent_text(tolerance)}",
        details=(*rows, *differences(*comparison.ran)),
        compared=ComparedSides(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )


def _sizes(held: HeldMemory) -> tuple[tuple[str, int, int], ...]:
    """The compared memory, the accepted difference of equal builds, and the bytes."""
    counted = held.counted
    return (
        ("weights", _COUNTED_SLACK, counted.weights),
        ("KV cache", _COUNTED_SLACK, counted.kv),
        ("compute buffers", _COUNTED_SLACK, counted.compute),
        ("peak RSS", _RSS_SLACK, held.peak_rss_bytes),
        ("steady RSS", _RSS_SLACK, held.steady_rss_bytes),
    )


def _subject(model: str, context: int, hardware: Hardware) -> Subject:
    on = f"{model} with a context of {context} tokens on {hardware.name}"
    brief = f"fit {model}, {context}, {hardware.name}"
    return Subject(f"fit of {on}:", "live", brief=brief, if_failed=_TOO_LARGE)


def expected_demand(ref: ModelRef, result: MemoryResult) -> Demand:
    """The allocation for a filled context that is predicted from the model's sizes."""
    ran = result.ran
    dtype = ran.loaded.dtype
    float_bytes = None if dtype is None else KV_BYTES_PER_ELEMENT[dtype]
    if ran.context is None:
        raise ValueError(f"{ran.model}: memory was counted without a context")
    type_k, type_v = (
        kv_bytes_per_element(name, float_bytes or 2.0)
        for name in (ran.context.type_k, ran.context.type_v)
    )
    positions = -(-result.n_ctx // _POSITIONS_STEP) * _POSITIONS_STEP
    return demand_of(ref, KvCache(positions, (type_k, type_v), float_bytes))
