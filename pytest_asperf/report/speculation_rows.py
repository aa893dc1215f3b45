"""The rows of a measurement of speculation: the gain with all raw counts, and what explains it."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import counted_text, number_text
from pytest_asperf.report.pair_data import suite_data
from pytest_asperf.report.rows import ReportRow, estimate_data, proof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.measure.speculation_result import PromptRun, SpeculationResult


def speculation_rows(result: SpeculationResult) -> list[ReportRow]:
    """The rows, the one with the raw figures first."""
    label = result.pairing.label
    gain = result.gain
    pairs = f"{gain.basis} of {counted_text(len(result.categories), 'prompts')}"
    counts = result.counts
    rounds = counted_text(len(counts.rounds), "rounds")
    costs = ", ".join(f"{size}: {cost.point:.2f}" for size, cost in result.verify.items())
    texts = [
        ("acceptance", f"{100 * counts.acceptance:.1f} % ({acceptance_text(result)})", rounds),
        (
            "accepted length",
            f"{counts.mean_length:.2f} tokens/round ({_each(counts.length_by_category, '.2f')})",
            rounds,
        ),
        ("speed ratio", f"{result.ratio.text()}, {break_even_text(result)}", pairs),
        ("C(k) by batch, in steps", f"{costs}; draft step {result.c.point:.3f}", pairs),
        ("predicted SD gain", f"{result.predicted_gain.text()}, {best_text(result)}", pairs),
        ("time with SD", split_text(result), rounds),
    ]
    ran = result.ran[0].rows()
    remarks = [*map(str, result.guard_findings), *result.watched.remarks_on_pairs]
    if result.interrupted:
        remarks.append(f"stopped after {gain.basis}")
    head = ReportRow(
        label,
        "SD gain",
        f"{gain.text()} ({number_text(result.alone_rate, 4)} → "
        f"{number_text(result.speculative_rate, 4)} tok/s)",
        pairs,
        ran=ran,
        brief=f"{number_text(result.alone_rate)} → {number_text(result.speculative_rate)} tok/s, "
        f"{gain.brief()}",
        note="\n".join(f"{label}: {remark}" for remark in remarks),
        raw=_raw(result),
    )
    return [head, *(ReportRow(label, what, text, basis, ran=ran) for what, text, basis in texts)]


def acceptance_text(result: SpeculationResult) -> str:
    """Acceptance by category and by position of the draft."""
    positions = " ".join(f"{100 * share:.0f}" for share in result.counts.acceptance_by_position)
    return f"{_each(result.counts.acceptance_by_category, '.0%')}; by position {positions} %"


def break_even_text(result: SpeculationResult) -> str:
    """The speed ratio from which this pair would gain."""
    ratio = result.break_even_ratio
    if ratio < math.inf:
        return f"break-even at {number_text(ratio)} x"
    emitted, cost = result.counts.mean_length, result.verifying
    return f"no break-even: a round emits {emitted:.2f}, and verifying it costs {cost:.2f} steps"


def best_text(result: SpeculationResult) -> str:
    """The number of drafted tokens with the highest predicted gain."""
    k, gain = result.best_k
    return f"best k={k} ({100 * gain:+.1f} %)"


def split_text(result: SpeculationResult) -> str:
    """Where the time of the speculative runs went."""
    return ", ".join(f"{part} {100 * share:.1f} %" for part, share in result.time_split.items())


def _each(figures: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{category} {figure:{form}}" for category, figure in figures.items())


def _raw(result: SpeculationResult) -> dict[str, Any]:
    pairing = result.pairing
    best, best_gain = result.best_k
    break_even = result.break_even_ratio
    return {
        "draft": pairing.draft.label if pairing.draft else None,
        "target": pairing.target.label,
        "machine": result.watched.as_dict(),
        "k": pairing.k,
        "temperature": pairing.temperature,
        "n_tokens": pairing.n_tokens,
        "rollback": {name: dict(facts.verbatim) for name, facts in result.contexts.items()},
        "seed": result.seed,
        "interrupted": result.interrupted,
        "trips": [
            {"guard": str(guard_finding.guard), "consequence": str(guard_finding.consequence)}
            for guard_finding in result.guard_findings
        ],
        "reloads": result.reloads,
        "gain": estimate_data(result.gain),
        "predicted_gain": estimate_data(result.predicted_gain),
        "ratio": estimate_data(result.ratio),
        "break_even_ratio": break_even if break_even < math.inf else None,
        "best_k": {"k": best, "gain": best_gain},
        "acceptance": result.counts.acceptance,
        "acceptance_by_category": result.counts.acceptance_by_category,
        "acceptance_by_position": list(result.counts.acceptance_by_position),
        "mean_length": result.counts.mean_length,
        "mean_length_by_category": result.counts.length_by_category,
        "drafting": result.drafting,
        "verifying": result.verifying,
        "drafted": result.counts.drafted,
        "accepted": result.counts.accepted,
        "c": estimate_data(result.c),
        "verify": {str(size): estimate_data(cost) for size, cost in result.verify.items()},
        "time_split": result.time_split,
        "divergences": [
            {
                "prompt": divergence.prompt,
                "position": divergence.position,
                "tokens": list(divergence.tokens),
                "margin": divergence.margin.largest,
            }
            for divergence in result.divergences
        ],
        "categories": list(result.categories),
        "comparison": suite_data(result),
        "pairs": [[_run(run) for run in pair.runs] for pair in result.pairs],
        "ran": [proof(ran) for ran in result.ran],
    }


def _run(run: PromptRun) -> dict[str, Any]:
    return {
        "prompt": run.prompt,
        "speculative_first": run.speculative_first,
        "alone_ns": run.alone.elapsed_ns,
        "speculative": {
            "n_tokens": len(run.speculative.tokens),
            "elapsed_ns": run.speculative.elapsed_ns,
            "rounds": [list(astuple(round_)) for round_ in run.speculative.rounds],
        },
    }
