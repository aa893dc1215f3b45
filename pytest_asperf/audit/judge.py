"""Figures with intervals from one file, and the guards that apply to each of them."""

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
from pytest_asperf.audit.judge_load import judge_loads
from pytest_asperf.audit.judge_table import judge_table
from pytest_asperf.audit.known import CACHE_BYTES, DEFAULT_REPETITIONS, Known
from pytest_asperf.audit.result import FileFindings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.audit.log import Log
    from pytest_asperf.audit.mlx_log import MlxReader, MlxTrial
    from pytest_asperf.audit.powermetrics import PowerLog
    from pytest_asperf.audit.read import FileReading
    from pytest_asperf.worker.printed.bench_rows import BenchRow
    from pytest_asperf.worker.printed.model_facts import ModelFacts
    from pytest_asperf.worker.printed.perplexity_log import PerplexityRun
    from pytest_asperf.worker.printed.speculation_log import SpeculationReader, SpeculationRun
    from pytest_asperf.worker.printed.timings import Request, ServerReader

_RATE: Final = "tok/s"
#: Below it, a median of samples has no interval at 90 %.
_LEAST_FOR_MEDIAN: Final = 5
#: A mean of rates and tokens over total time differ by about the squared variation of the times,
#: so by this much where they vary by 22 %.
_MEANS_DIFFER: Final = 0.05
_PRESSURES: Final = {"Nominal": 0, "Moderate": 1, "Heavy": 2, "Trapping": 3, "Sleeping": 4}


def judge_file(reading: FileReading, known: Known) -> FileFindings:
    """Figures and guard findings of one file."""
    findings = FileFindings(str(reading.path), reading.format, reading.problem)
    if reading.cut_lines:
        findings.notes.append(f"{reading.cut_lines} lines are too long for any tool and were cut")
    for row in reading.measurement:
        _judge_bench(row, known, findings)
    _note_unsaid(reading.measurement, known, findings)
    if reading.log is not None:
        _judge_log(reading.log, known, findings)
    if reading.power is not None:
        _judge_power(reading.power, findings)
    judge_loads(reading.load, known, findings)
    if reading.table:
        judge_table(reading.table, known, findings)
    return findings


def rate_of(samples: Sequence[float], confidence: float, counted: str) -> Estimate:
    """The median with its interval, or the mean where there are too few for that."""
    interval = median_interval if len(samples) >= _LEAST_FOR_MEDIAN else mean_interval_t
    estimate = interval(samples, confidence, unit=_RATE, counted=counted)
    if interval is median_interval and not estimate.has_interval:
        return mean_interval_t(samples, confidence, unit=_RATE, counted=counted)
    return estimate


def _judge_bench(row: BenchRow, known: Known, findings: FileFindings) -> None:
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
    findings.measured(name, estimate)
    findings.add(name, guards.spread(mean, sd, n))
    _note_means(row, name, estimate, findings)
    if row.is_generation:
        _judge_roofline(row, name, mean, known, findings)


def _note_means(row: BenchRow, name: str, estimate: Estimate, findings: FileFindings) -> None:
    """Note a printed mean of rates that is not the rate, such as after a stalled repetition."""
    if row.rates:
        other, what = estimate.point, "the rate by samples"
    elif row.mean_ns:
        other, what = row.n_tokens * 1e9 / row.mean_ns, "tokens over time"
    else:
        return
    if abs(row.mean_rate / other - 1) > _MEANS_DIFFER:
        findings.notes.append(
            f"{name}: {row.mean_rate:.4g} tok/s is printed, which is a mean of rates; {what} is "
            f"{other:.4g} tok/s: some repetitions were far slower than others"
        )


def _judge_roofline(
    row: BenchRow, name: str, rate: float, known: Known, findings: FileFindings
) -> None:
    bandwidth_gbs = known.bandwidth_gbs([row.device] if row.device else [])
    if bandwidth_gbs is None:
        return
    least = known.least_step_bytes(row.model, row.n_depth)
    if least:
        high = guards.roofline_high(rate, least, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        findings.add(name, high)
    if row.model_bytes:  # all tensors: at least what a step reads
        low = guards.roofline_low(rate, row.model_bytes, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        findings.add(name, low)


def _note_unsaid(rows: Sequence[BenchRow], known: Known, findings: FileFindings) -> None:
    if any(not row.rates for row in rows) and not known.options.repetitions:
        findings.notes.append(
            f"this form of llama-bench's output does not say how often a test was run: n = "
            f"{DEFAULT_REPETITIONS}, its default, is assumed; --repetitions gives it, and -o jsonl "
            "keeps every sample"
        )
    for setting in dict.fromkeys(setting for row in rows for setting in row.unresolved):
        findings.notes.append(f"{setting} was requested; the value that ran is unknown")


def _judge_log(log: Log, known: Known, findings: FileFindings) -> None:
    for number, model in enumerate(log.models):
        role = ("target" if number == 0 else "draft") if log.speculation else "model"
        findings.ran.append((role, _ran(model)))
    if log.remote:
        findings.ran.append(("remote", log.remote))
    findings.add("log", guards.decode_errors(log.errors.lines))
    findings.add("log", guards.remote_errors(log.errors.lines))
    if log.errors.left_out:
        findings.notes.append(f"{log.errors.left_out} more error lines are not counted")
    if log.errors.crash:
        findings.notes.append(f"a program crashed: {log.errors.crash}")
    if log.perplexity:
        _judge_perplexity(log.perplexity, known, findings)
    if log.speculation:
        _judge_speculation(log.speculation, log.models, known, findings)
    if log.server.requests:
        _judge_requests(log.server, known, findings)
    if log.mlx.trials:
        _judge_trials(log.mlx, known, findings)
    _judge_drafters(log.drafting, findings)
    if not findings.figures and not findings.guard_findings:
        findings.problem = "a llama.cpp log without a measurement"


def _ran(model: ModelFacts) -> str:
    devices = ", ".join(f"{name} ({what})" for name, what in model.devices)
    return "; ".join(filter(None, [str(model), devices, model.placement]))


def _judge_perplexity(run: PerplexityRun, known: Known, findings: FileFindings) -> None:
    nll = run.chunk_nll
    if run.broken:
        findings.notes.append(run.broken)
    for name, value, error in run.statistics:
        spread = "" if error is None else f" ± {error:g}, one standard error, tokens as independent"
        findings.measured(name, text=f"{value:g}{spread}")
    if run.planned_chunks is not None and not run.statistics:
        asked, ran = {"chunks": run.planned_chunks}, {"chunks": len(nll)}
        findings.add("PPL", guards.path_mismatch(asked, ran))
    if not nll:
        return
    log_ppl = chunk_mean_interval([[v] for v in nll], known.options.confidence, unit="")
    findings.measured("PPL", _exponential(log_ppl), "unpaired; compare paired figures")


def _exponential(log: Estimate) -> Estimate:
    def exp(x: float) -> float:
        return math.exp(x) if x < 700 else math.inf

    return replace(log, point=exp(log.point), low=exp(log.low), high=exp(log.high))


def _judge_speculation(
    run: SpeculationRun, models: Sequence[ModelFacts], known: Known, findings: FileFindings
) -> None:
    if run.rate:
        findings.measured("TG", text=f"{run.rate:.4g} tok/s in one run: no interval")
    if (verified := run.first_verified) and verified[2]:
        findings.measured("acceptance", text=_share(*verified))
    if run.rounds:
        emitted = f"{run.n_predict / run.rounds:.3g} tokens emitted in each of {run.rounds}"
        findings.measured("rounds", text=emitted)
    findings.add("text", guards.degenerate_output(run.text.splitlines()))
    if run.undecoded_drafts:
        findings.notes.append(
            f"{run.undecoded_drafts} of {run.n_drafted} drafted tokens have no decode of the draft "
            "behind them, by the log's own counters"
        )
    if run.uses_checkpoints:
        findings.notes.append(
            f"the tool verifies accepted tokens again from checkpoints and counts those alone: "
            f"{run.n_accept} of {run.n_drafted}, as it prints, is no acceptance rate"
            + ("" if run.verified else "; a log at -lv 5 has every round")
        )
    if run.rate and models:
        _judge_rounds(run, run.rate, models, known, findings)


def _judge_rounds(
    run: SpeculationRun,
    rate: float,
    models: Sequence[ModelFacts],
    known: Known,
    findings: FileFindings,
) -> None:
    """Check a run against memory bandwidth and against the target alone."""
    target, draft = models[0], models[1] if len(models) > 1 else None
    devices = [what for _, what in target.devices]
    bandwidth_gbs = known.bandwidth_gbs(devices)
    target_bytes = known.least_step_bytes(target.file_name)
    draft_bytes = known.least_step_bytes(draft.file_name) if draft else 0.0
    if bandwidth_gbs and target_bytes and run.rounds and run.decoded:
        per_round = target_bytes + (draft_bytes or 0.0) * run.n_drafted_by_model / run.rounds
        rounds_per_s = run.rounds / run.decoded[1]
        high = guards.roofline_high(rounds_per_s, per_round, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        findings.add("TG, rounds of target and draft", high)
    alone = known.rate_alone(target.file_name, devices)
    longest, verified = run.longest_draft, run.first_verified
    if alone and longest and verified and 0 <= verified[1] <= verified[2] > 0:
        draft_alone = known.rate_alone(draft.file_name, devices) if draft else None
        findings.add(
            "TG",
            guards.sd_bound(
                rate, alone, k=longest, drafted=verified[2], accepted=verified[1],
                c=alone / draft_alone if draft_alone else 0.0,
            ),
        )  # fmt: skip


def _share(least: int, most: int, drafted: int) -> str:
    low, high = f"{least / drafted:.2%}", f"{most / drafted:.2%}"
    return f"{low if low == high else f'{low} to {high}'} of {drafted} drafted tokens"


def _judge_drafters(drafting: SpeculationReader, findings: FileFindings) -> None:
    """Note what drafted and who accepted, and the acceptance of each of several drafters."""
    if drafting.is_synthetic:
        asked, ran = {"acceptance": "by the target"}, {"acceptance": "drawn at random"}
        findings.add("log", guards.path_mismatch(asked, ran))
    if not drafting.drafters:
        return
    findings.ran.append(("drafts", ", ".join(drafter.kind for drafter in drafting.drafters)))
    if len(drafting.drafters) > 1 and not drafting.uses_checkpoints:
        for drafter in drafting.drafters:
            share = _share(drafter.n_accepted, drafter.n_accepted, drafter.n_drafted)
            findings.measured(f"acceptance, {drafter.kind}", text=share)


def _judge_requests(server: ServerReader, known: Known, findings: FileFindings) -> None:
    confidence = known.options.confidence
    rates = [rate for request in server.requests if (rate := request.rate)]
    prompts = [rate for r in server.requests if r.prompt and (rate := r.prompt.rate)]
    for name, samples in (("TG", rates), ("PP", prompts)):
        if samples:
            findings.measured(name, rate_of(samples, confidence, "requests"))
    drafted = sum(request.n_drafted for request in server.requests)
    if drafted:
        accepted = sum(request.n_accepted for request in server.requests)
        findings.measured("acceptance", text=_share(accepted, accepted, drafted))
    _note_counting(server.requests, findings)
    if server.left_out:
        findings.notes.append(f"{server.left_out} more requests are not counted")


def _note_counting(requests: Sequence[Request], findings: FileFindings) -> None:
    counting = [r.generated.n_tokens for r in requests if r.counts_first_token]
    if counting:
        excess = max(1 / (n - 1) for n in counting if n > 1)
        findings.notes.append(
            f"this release divides n tokens by the time of n - 1 steps: printed rates are up to "
            f"{excess:.2%} above TG; other releases do not"
        )


def _judge_trials(mlx: MlxReader, known: Known, findings: FileFindings) -> None:
    by_size: dict[tuple[int, int, int], list[MlxTrial]] = {}
    for trial in mlx.trials:
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
                findings.measured(name, estimate)
            if len(samples) > 1:
                findings.add(name, guards.spread(*coefficient_of_variation(samples)))
    findings.notes.append(
        "mlx_lm divides n generated tokens by the time of n - 1 steps, which is taken out here; "
        "its prompt rate includes the first decode"
    )
    if mlx.is_cut_short:
        findings.notes.append("the benchmark did not finish: it printed no averages")


def _judge_power(power: PowerLog, findings: FileFindings) -> None:
    findings.ran.append(("machine", power.machine or "unknown"))
    for rail, sums in power.rails.items():
        mean_w = sums.energy_j / power.elapsed_s
        findings.measured(
            f"{rail.upper()} energy",
            Estimate.exact(sums.energy_j, "J"),
            f"{mean_w:.3g} W over {power.elapsed_s:.4g} s, {sums.least_w:.3g} to "
            f"{sums.most_w:.3g} W by sample (n = {power.n_samples})",
        )
        if not sums.energy_j:
            findings.notes.append(
                f"{rail.upper()} reads 0 J throughout: idle, or a counter that is dead"
            )
    levels = [_PRESSURES[word] for word in power.thermal if word in _PRESSURES]
    findings.add("thermal pressure", guards.throttled(levels))
    if not levels:
        findings.notes.append("thermal pressure is not in the samples, so it is unknown")
    if power.broken:
        findings.notes.append(f"{power.broken} samples are cut off or broken and were skipped")
    findings.notes.append("rails are modelled, not metered; memory and the wall are not in them")
