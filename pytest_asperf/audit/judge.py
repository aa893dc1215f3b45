"""From what a file holds to what it shows: figures with intervals, and the guards that trip.

The rules are those of `guards`; here is decided which figures of a file each is asked about.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards.surroundings import coefficient_of_variation
from pytest_asperf.analysis.stats.chunk_intervals import chunk_mean_interval
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.intervals import (
    mean_interval_t,
    median_interval,
    summary_interval_t,
)
from pytest_asperf.audit.known import CACHE_BYTES, DEFAULT_REPETITIONS
from pytest_asperf.audit.result import AuditedFigure, FileFindings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.audit.known import Known
    from pytest_asperf.audit.log import Log
    from pytest_asperf.audit.mlx_log import MlxTrial
    from pytest_asperf.audit.powermetrics import PowerLog
    from pytest_asperf.audit.read import FileReading
    from pytest_asperf.worker.printed.bench_rows import BenchRow
    from pytest_asperf.worker.printed.model_facts import ModelFacts
    from pytest_asperf.worker.printed.perplexity_log import PerplexityRun
    from pytest_asperf.worker.printed.speculation_log import SpeculationRun
    from pytest_asperf.worker.printed.timings import Request

_RATE: Final = "tok/s"
#: Below it, a median of samples has no interval at 90 %.
_LEAST_FOR_MEDIAN: Final = 5
#: A mean of rates and tokens over total time differ by about the squared variation of the times,
#: so by this much where they vary by 22 %.
_MEANS_DIFFER: Final = 0.05
_PRESSURES: Final = {"Nominal": 0, "Moderate": 1, "Heavy": 2, "Trapping": 3, "Sleeping": 4}


def judge_file(reading: FileReading, known: Known) -> FileFindings:
    """Return what one file shows."""
    found = FileFindings(str(reading.path), reading.format, reading.problem)
    if reading.cut_lines:
        found.notes.append(f"{reading.cut_lines} lines are longer than any tool's: cut")
    for row in reading.measurement:
        _judge_bench(row, known, found)
    _note_unsaid(reading.measurement, known, found)
    if reading.log is not None:
        _judge_log(reading.log, known, found)
    if reading.power is not None:
        _judge_power(reading.power, found)
    return found


def rate_of(samples: Sequence[float], confidence: float, counted: str) -> Estimate:
    """Return the median with its interval, or the mean where there are too few for that."""
    interval = median_interval if len(samples) >= _LEAST_FOR_MEDIAN else mean_interval_t
    estimate = interval(samples, confidence, unit=_RATE, counted=counted)
    if interval is median_interval and not estimate.has_interval:
        return mean_interval_t(samples, confidence, unit=_RATE, counted=counted)
    return estimate


def _judge_bench(row: BenchRow, known: Known, found: FileFindings) -> None:
    name = f"{row.test} {row.model}"
    if row.rates:
        estimate = rate_of(row.rates, known.options.confidence, "repetitions")
        mean, sd, n = coefficient_of_variation(row.rates)
    else:
        mean, sd = row.mean_rate, row.sd_rate
        n = known.options.repetitions or DEFAULT_REPETITIONS
        estimate = summary_interval_t(
            mean, sd, n, known.options.confidence, unit=_RATE, counted="repetitions"
        )
    found.figures.append(AuditedFigure(name, estimate))
    found.guard_finding(name, guards.spread(mean, sd, n))
    _note_means(row, name, estimate, found)
    if row.is_generation:
        _judge_roofline(row, name, mean, known, found)


def _note_means(row: BenchRow, name: str, estimate: Estimate, found: FileFindings) -> None:
    """Say where the printed mean of rates is not the rate, as one stalled repetition makes it."""
    if row.rates:
        other, what = estimate.point, "the rate by samples"
    elif row.mean_ns:
        other, what = row.n_tokens * 1e9 / row.mean_ns, "tokens over time"
    else:
        return
    if abs(row.mean_rate / other - 1) > _MEANS_DIFFER:
        found.notes.append(
            f"{name}: {row.mean_rate:.4g} tok/s is printed, a mean of rates; {what} is "
            f"{other:.4g} tok/s, so that some repetitions were far slower than others"
        )


def _judge_roofline(
    row: BenchRow, name: str, rate: float, known: Known, found: FileFindings
) -> None:
    bandwidth_gbs = known.bandwidth_gbs([row.device] if row.device else [])
    if bandwidth_gbs is None:
        return
    least = known.least_step_bytes(row.model, row.n_depth)
    if least:
        high = guards.roofline_high(rate, least, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        found.guard_finding(name, high)
    if row.model_bytes:  # all tensors: at least what a step reads
        low = guards.roofline_low(rate, row.model_bytes, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        found.guard_finding(name, low)


def _note_unsaid(rows: Sequence[BenchRow], known: Known, found: FileFindings) -> None:
    if any(not row.rates for row in rows) and not known.options.repetitions:
        found.notes.append(
            f"this form of llama-bench's output does not say how often a test was run: n = "
            f"{DEFAULT_REPETITIONS}, its default, is assumed; --repetitions gives it, and -o jsonl "
            "keeps every sample"
        )
    for setting in dict.fromkeys(setting for row in rows for setting in row.unresolved):
        found.notes.append(f"{setting} is what was asked for; what ran is unknown")


def _judge_log(log: Log, known: Known, found: FileFindings) -> None:
    for number, model in enumerate(log.models):
        role = ("target" if number == 0 else "draft") if log.speculation else "model"
        found.ran.append((role, _ran(model)))
    if log.remote:
        found.ran.append(("remote", log.remote))
    found.guard_finding("log", guards.decode_errors(log.error_lines))
    found.guard_finding("log", guards.remote_errors(log.error_lines))
    if log.errors_left_out:
        found.notes.append(f"{log.errors_left_out} more lines of errors than are counted")
    if log.crash:
        found.notes.append(f"a program broke off: {log.crash}")
    if log.perplexity:
        _judge_perplexity(log.perplexity, known, found)
    if log.speculation:
        _judge_speculation(log.speculation, log.models, known, found)
    if log.requests:
        _judge_requests(log, known, found)
    if log.trials:
        _judge_trials(log, known, found)
    _judge_drafters(log, found)
    if not found.figures and not found.guard_findings:
        found.problem = "a llama.cpp log that ends without a measurement"


def _ran(model: ModelFacts) -> str:
    devices = ", ".join(f"{name} ({what})" for name, what in model.devices)
    return "; ".join(filter(None, [str(model), devices, model.placement]))


def _judge_perplexity(run: PerplexityRun, known: Known, found: FileFindings) -> None:
    nll = run.chunk_nll
    if run.broken:
        found.notes.append(run.broken)
    for name, value, error in run.statistics:
        spread = "" if error is None else f" ± {error:g}, one standard error, tokens as independent"
        found.figures.append(AuditedFigure(name, text=f"{value:g}{spread}"))
    if run.planned_chunks is not None and not run.statistics:
        asked, ran = {"chunks": run.planned_chunks}, {"chunks": len(nll)}
        found.guard_finding("PPL", guards.path_mismatch(asked, ran))
    if not nll:
        return
    log_ppl = chunk_mean_interval([[v] for v in nll], known.options.confidence, unit="")
    found.figures.append(
        AuditedFigure("PPL", _exponential(log_ppl), "unpaired; compare paired figures")
    )


def _exponential(log: Estimate) -> Estimate:
    def exp(x: float) -> float:
        return math.exp(x) if x < 700 else math.inf

    return replace(log, point=exp(log.point), low=exp(log.low), high=exp(log.high))


def _judge_speculation(
    run: SpeculationRun, models: Sequence[ModelFacts], known: Known, found: FileFindings
) -> None:
    if run.rate:
        found.figures.append(
            AuditedFigure("TG", text=f"{run.rate:.4g} tok/s in one run: no interval")
        )
    if (verified := run.first_verified) and verified[2]:
        found.figures.append(AuditedFigure("acceptance", text=_share(*verified)))
    if run.rounds:
        emitted = f"{run.n_predict / run.rounds:.3g} tokens emitted in each of {run.rounds}"
        found.figures.append(AuditedFigure("rounds", text=emitted))
    found.guard_finding("text", guards.degenerate_output(run.text.splitlines()))
    if run.undecoded_drafts:
        found.notes.append(
            f"{run.undecoded_drafts} of {run.n_drafted} drafted tokens have no decode of the draft "
            "behind them, by the log's own counters"
        )
    if run.uses_checkpoints:
        found.notes.append(
            f"the tool verifies accepted tokens again from checkpoints and counts only that: "
            f"{run.n_accept} of {run.n_drafted}, as it prints, is no acceptance"
            + ("" if run.verified else "; a log at -lv 5 has every round")
        )
    if run.rate and models:
        _judge_rounds(run, run.rate, models, known, found)


def _judge_rounds(
    run: SpeculationRun,
    rate: float,
    models: Sequence[ModelFacts],
    known: Known,
    found: FileFindings,
) -> None:
    """Hold a run against the memory's bandwidth, and against the target alone."""
    target, draft = models[0], models[1] if len(models) > 1 else None
    devices = [what for _, what in target.devices]
    bandwidth_gbs = known.bandwidth_gbs(devices)
    target_bytes = known.least_step_bytes(target.file_name)
    draft_bytes = known.least_step_bytes(draft.file_name) if draft else 0.0
    if bandwidth_gbs and target_bytes and run.rounds and run.decoded:
        per_round = target_bytes + (draft_bytes or 0.0) * run.n_drafted_by_model / run.rounds
        rounds_per_s = run.rounds / run.decoded[1]
        high = guards.roofline_high(rounds_per_s, per_round, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        found.guard_finding("TG, rounds of target and draft", high)
    alone = known.rate_alone(target.file_name, devices)
    longest, verified = run.longest_draft, run.first_verified
    if alone and longest and verified and 0 <= verified[1] <= verified[2] > 0:
        draft_alone = known.rate_alone(draft.file_name, devices) if draft else None
        found.guard_finding(
            "TG",
            guards.sd_bound(
                rate, alone, k=longest, drafted=verified[2], accepted=verified[1],
                c=alone / draft_alone if draft_alone else 0.0,
            ),
        )  # fmt: skip


def _share(least: int, most: int, drafted: int) -> str:
    low, high = f"{least / drafted:.2%}", f"{most / drafted:.2%}"
    return f"{low if low == high else f'{low} to {high}'} of {drafted} drafted tokens"


def _judge_drafters(log: Log, found: FileFindings) -> None:
    """Say what drafted, who accepted, and of several how often each was, where that is told."""
    if log.is_synthetic:
        asked, ran = {"acceptance": "by the target"}, {"acceptance": "drawn at random"}
        found.guard_finding("log", guards.path_mismatch(asked, ran))
    if not log.drafters:
        return
    found.ran.append(("drafts", ", ".join(one.kind for one in log.drafters)))
    if len(log.drafters) > 1 and not log.uses_checkpoints:
        for one in log.drafters:
            share = _share(one.n_accepted, one.n_accepted, one.n_drafted)
            found.figures.append(AuditedFigure(f"acceptance, {one.kind}", text=share))


def _judge_requests(log: Log, known: Known, found: FileFindings) -> None:
    confidence = known.options.confidence
    rates = [rate for request in log.requests if (rate := request.rate)]
    prompts = [rate for r in log.requests if r.prompt and (rate := r.prompt.rate)]
    for name, samples in (("TG", rates), ("PP", prompts)):
        if samples:
            found.figures.append(AuditedFigure(name, rate_of(samples, confidence, "requests")))
    drafted = sum(request.n_drafted for request in log.requests)
    if drafted:
        accepted = sum(request.n_accepted for request in log.requests)
        found.figures.append(AuditedFigure("acceptance", text=_share(accepted, accepted, drafted)))
    _note_counting(log.requests, found)
    if log.requests_left_out:
        found.notes.append(f"{log.requests_left_out} more requests than are counted")


def _note_counting(requests: Sequence[Request], found: FileFindings) -> None:
    counting = [r.generated.n_tokens for r in requests if r.counts_first_token]
    if counting:
        excess = max(1 / (n - 1) for n in counting if n > 1)
        found.notes.append(
            f"this release divides n tokens by the time of n - 1 steps: printed rates are up to "
            f"{excess:.2%} above TG; other releases do not"
        )


def _judge_trials(log: Log, known: Known, found: FileFindings) -> None:
    by_size: dict[tuple[int, int, int], list[MlxTrial]] = {}
    for trial in log.trials:
        by_size.setdefault((trial.n_prompt, trial.n_gen, trial.batch), []).append(trial)
    for (n_prompt, n_gen, batch), trials in by_size.items():
        suffix = f" in batches of {batch}" if batch > 1 else ""
        generated = [rate for trial in trials if (rate := trial.rate)]
        prompts = [trial.prompt_rate for trial in trials if trial.prompt_rate]
        for name, samples in (
            (f"tg{n_gen}{suffix}", generated),
            (f"pp{n_prompt}{suffix}", prompts),
        ):
            if samples:
                estimate = rate_of(samples, known.options.confidence, "trials")
                found.figures.append(AuditedFigure(name, estimate))
            if len(samples) > 1:
                found.guard_finding(name, guards.spread(*coefficient_of_variation(samples)))
    found.notes.append(
        "mlx_lm divides n generated tokens by the time of n - 1 steps, which is taken out here; "
        "its prompt rate includes the first decode"
    )
    if log.trials_cut_short:
        found.notes.append("the benchmark broke off: it printed no averages")


def _judge_power(power: PowerLog, found: FileFindings) -> None:
    found.ran.append(("machine", power.machine or "unknown"))
    for rail, sums in power.rails.items():
        mean_w = sums.energy_j / power.elapsed_s
        found.figures.append(
            AuditedFigure(
                f"{rail.upper()} energy",
                Estimate.exact(sums.energy_j, "J"),
                f"{mean_w:.3g} W over {power.elapsed_s:.4g} s, {sums.least_w:.3g} to "
                f"{sums.most_w:.3g} W by sample (n = {power.n_samples})",
            )
        )
        if not sums.energy_j:
            found.notes.append(
                f"{rail.upper()} reads 0 J throughout: idle, or a counter that is dead"
            )
    levels = [_PRESSURES[word] for word in power.thermal if word in _PRESSURES]
    found.guard_finding("thermal pressure", guards.throttled(levels))
    if not levels:
        found.notes.append("thermal pressure is not in the samples, so nothing is known of it")
    if power.broken:
        found.notes.append(f"{power.broken} samples are cut off or broken, and left out")
    found.notes.append("rails are modelled, not metered; memory and the wall are not in them")
