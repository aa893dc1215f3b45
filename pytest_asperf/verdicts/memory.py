"""Verdicts on memory: if a model fits, and if one build uses more than another."""

from dataclasses import replace
from typing import Final

from pytest_asperf.analysis.capacity import GPU_SHARE, Demand, Fit, MemoryCapacity, fit
from pytest_asperf.analysis.facts import ComparedVariants
from pytest_asperf.analysis.guards import predicted_against_measured
from pytest_asperf.analysis.results import FitsMemory, Growth, JudgedFigure, MemoryGrowth
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.config.engine_settings import KV_TYPES, kv_bytes_per_element
from pytest_asperf.config.engines import mlx_scheme
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.errors import Advice, ConfigError, ModelError
from pytest_asperf.hardware.in_force import Hardware
from pytest_asperf.measure.memory import LATER_REQUESTS, HeldMemory, MemoryComparison, MemoryResult
from pytest_asperf.modelfiles.sizes import KvCache, demand_of
from pytest_asperf.verdicts.paired import build_subject

#: Both engines make room for positions in steps of so many: `GGML_PAD(n_ctx, 256)` in
#: llama-context.cpp, `KVCache.step` in mlx-lm's cache.py.
_POSITIONS_STEP: Final = 256
_MIB: Final = 2**20
#: Growth that is accepted whatever the tolerance, bytes: an engine's count is of whole buffers, and
#: resident memory differs between processes of one build (docs/benchmarks.md).
_COUNTED_SLACK: Final = _MIB
_RSS_SLACK: Final = 8 * _MIB
_LEFT_SLACK: Final = 2 * _MIB
_UNKNOWN_LIMIT: Final = (
    f"a Mac gives its GPU {GPU_SHARE:.0%} of its memory or more, and this share is unknown: see "
    "recommendedMaxWorkingSetSize in its engine's log, or use a smaller quantization"
)
_TOO_LARGE: Final = "use a smaller quantization, a shorter context or q8_0 KV types"


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
    return judge_fit(fit(memory, [demand]), subject)


def measured_fit(
    ref: ModelRef, result: MemoryResult, hardware: Hardware, memory: MemoryCapacity
) -> Verdict:
    """Judge by an engine's allocations if a model fits.

    If its sizes are known, the prediction from them is compared with that.
    """
    allocated, metal = result.memory, result.ran.metal
    if metal is not None and not memory.is_certain:
        memory = replace(memory, gpu_limit_bytes=metal.working_set_bytes or None)
    subject = replace(_subject(result.ran.model, result.n_ctx, hardware), ran=result.ran.rows())
    held = Fit(memory, allocated.weights, allocated.kv, allocated.compute)
    try:
        demand = expected_demand(ref, result)
    except ModelError as err:
        return replace(judge_fit(held, subject), details=(f"not predicted: {err.what}",))
    pairs = ((demand.weights_bytes, allocated.weights), (demand.kv_bytes, allocated.kv))
    known = tuple((a, b) for a, b in pairs if a > 0 and b > 0)
    findings = [predicted_against_measured(a / _MIB, b / _MIB, unit="MiB") for a, b in known]
    return guarded(judge_fit(held, subject, known), filter(None, findings))


def judge_fit(sizes: Fit, subject: Subject, expected: tuple[tuple[int, int], ...] = ()) -> Verdict:
    """Judge the assertion that models fit in a memory.

    It is arithmetic on sizes, so it is INCONCLUSIVE only if a Mac's limit for its GPU is unknown.
    `expected` has predicted and allocated bytes, if both are known.
    """
    outcome = Outcome.PASS if sizes.fits else Outcome.FAIL
    advice = () if sizes.fits else (Advice(subject.if_failed),)
    if sizes.is_uncertain:
        outcome, advice = Outcome.INCONCLUSIVE, (Advice(_UNKNOWN_LIMIT),)
    return subject.verdict(
        outcome,
        FitsMemory(fit=sizes, is_predicted=subject.source == "predicted", expected=expected),
        figures=tuple(
            JudgedFigure(label, Estimate.exact(size / 2**30, "GiB"), at_most=limit / 2**30)
            for label, size, limit in (
                ("with the KV cache", sizes.needed_bytes, sizes.memory.usable_bytes),
                ("weights", sizes.weights_bytes, sizes.weights_limit_bytes),
            )
        ),
        advice=advice,
    )


def memory_verdict(comparison: MemoryComparison, tolerance: float) -> Verdict:
    """The verdict on the memory of two builds, by the engine's count and by their processes.

    The tolerance is a fraction, in addition to the difference of equal builds.
    """
    subject = replace(
        build_subject(f"memory at {comparison.n_ctx} tokens,", comparison.ran, "larger"),
        if_failed="the candidate needs more memory: look for a cache of another type or size, "
        "buffers that grew, weights that are copied, or memory that requests do not free",
    )
    parts, figures = [], []
    sizes = zip(_sizes(comparison.base), _sizes(comparison.candidate), strict=True)
    for (label, slack, base), (_, _, candidate) in sizes:
        growth = Estimate.exact((candidate - base) / _MIB, "MiB")
        limit = (base * tolerance + slack) / _MIB
        figures.append(JudgedFigure(f"growth of {label}", growth, at_most=limit))
        parts.append(Growth(label, base, candidate, is_too_much=not growth.shown_at_most(limit)))
    is_larger = any(part.is_too_much for part in parts)
    return subject.verdict(
        Outcome.FAIL if is_larger else Outcome.PASS,
        MemoryGrowth(
            tolerance=tolerance,
            counted_slack=_COUNTED_SLACK,
            process_slack=_RSS_SLACK,
            left_slack=_LEFT_SLACK,
            parts=tuple(parts),
        ),
        figures=tuple(figures),
        advice=(Advice(subject.if_failed),) if is_larger else (),
        compared=ComparedVariants(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
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
        (f"RSS left by {LATER_REQUESTS} requests", _LEFT_SLACK, max(0, held.left_bytes)),
    )


def _subject(model: str, context: int, hardware: Hardware) -> Subject:
    on = f"{model} with a context of {context} tokens on {hardware.name}"
    brief = f"fit {model}, {context}, {hardware.name}"
    return Subject(f"fit of {on}:", "live", brief=brief, if_failed=_TOO_LARGE)


def expected_demand(ref: ModelRef, result: MemoryResult) -> Demand:
    """The allocation for a filled context that is predicted from the model's sizes."""
    ran = result.ran
    dtype = ran.loaded.dtype
    float_bytes = None if dtype is None else KV_TYPES[dtype]
    if ran.context is None:
        raise ValueError(f"{ran.model}: memory was counted without a context")
    held = ran.context.type_k, ran.context.type_v
    if unknown := [name for name in held if name not in KV_TYPES and mlx_scheme(name) is None]:
        raise ModelError(
            f"a KV cache of {unknown[0]} has no known size",
            why="the prediction needs the bytes of an element",
            remedy="read the engine's own count above",
        )
    type_k, type_v = (kv_bytes_per_element(name, float_bytes or 2.0) for name in held)
    positions = -(-result.n_ctx // _POSITIONS_STEP) * _POSITIONS_STEP
    return demand_of(ref, KvCache(positions, (type_k, type_v), float_bytes))
