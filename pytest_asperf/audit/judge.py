"""Figures with intervals from one file, and the guards that apply to each of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Guard, GuardFinding
from pytest_asperf.analysis.guards.surroundings import coefficient_of_variation
from pytest_asperf.analysis.stats.chunk_intervals import (
    LEAST_CHUNKS,
    chunk_mean_interval,
    wilson_bounds,
)
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.intervals import (
    mean_interval_t,
    median_interval,
    summary_interval_t,
    z_quantile,
)
from pytest_asperf.audit.judge_load import judge_loads
from pytest_asperf.audit.known import CACHE_BYTES, DEFAULT_REPETITIONS, Known
from pytest_asperf.audit.llama_bench import distinct_names
from pytest_asperf.audit.log import Log
from pytest_asperf.audit.mlx_log import MlxTrial
from pytest_asperf.audit.ollama import CUT_REPLIES
from pytest_asperf.audit.powermetrics import PowerLog
from pytest_asperf.audit.quoted import BENCHY
from pytest_asperf.audit.quoted import distinct_names as quoted_names
from pytest_asperf.audit.read import FileReading
from pytest_asperf.audit.result import EQUAL, FileFindings
from pytest_asperf.audit.tables import TableRow
from pytest_asperf.audit.titles import Title, grouped, labels, prefixes
from pytest_asperf.worker.printed.bench_rows import BenchRow
from pytest_asperf.worker.printed.model_facts import ModelFacts
from pytest_asperf.worker.printed.perplexity_log import PerplexityRun
from pytest_asperf.worker.printed.speculation_log import Drafter, SpeculationRun
from pytest_asperf.worker.printed.timings import Request

_RATE: Final = "tok/s"
#: Below it, a median of samples has no interval at 90 %.
_LEAST_FOR_MEDIAN: Final = 5
#: A mean of rates and tokens over total time differ by about the squared variation of the times,
#: so by this much where they vary by 22 %.
_MEANS_DIFFER: Final = 0.05
_MOST_PROBLEMS: Final = 3
_T = TypeVar("_T")
_PRESSURES: Final = {"Nominal": 0, "Moderate": 1, "Heavy": 2, "Trapping": 3, "Sleeping": 4}


def judge_file(reading: FileReading, known: Known) -> FileFindings:
    """Figures and guard findings of one file."""
    findings = FileFindings(str(reading.path), reading.format, reading.problem)
    if reading.cut_lines:
        findings.notes.append(f"{reading.cut_lines} lines are too long for any tool and were cut")
    if reading.log is not None:
        _judge_log(reading.log, known, findings)
    if reading.power is not None:
        _judge_power(reading.power, findings)
    return findings


def rate_of(samples: Sequence[float], confidence: float, counted: str) -> Estimate:
    """The median with its interval, or the mean if there are too few for that.

    Figures that are all equal are rounded, and show no spread: they have no interval.
    """
    if len(samples) > 1 and len(set(samples)) == 1:
        return Estimate(
            samples[0], -math.inf, math.inf, len(samples),
            method=EQUAL, unit=_RATE, counted=counted, confidence=confidence,
        )  # fmt: skip
    interval = median_interval if len(samples) >= _LEAST_FOR_MEDIAN else mean_interval_t
    estimate = interval(samples, confidence, unit=_RATE, counted=counted)
    if interval is median_interval and not estimate.has_interval:
        return mean_interval_t(samples, confidence, unit=_RATE, counted=counted)
    return estimate


def widened(estimate: Estimate, rounding: float) -> Estimate:
    """An interval no narrower than the rounding of the printed decimals."""
    low, high = estimate.point - rounding, estimate.point + rounding
    return replace(estimate, low=min(estimate.low, low), high=max(estimate.high, high))


def _judge_benches(rows: Sequence[BenchRow], known: Known, findings: FileFindings) -> None:
    printed = [row for row in rows if not row.rates and row.sd_rate is not None]
    # Rates of several runs that are equal to the last decimal do not occur in every test.
    repetitions = known.options.repetitions or (
        DEFAULT_REPETITIONS if any(row.sd_rate for row in printed) else 1
    )
    for name, row in zip(distinct_names(rows), rows, strict=True):
        _judge_bench(row, name, repetitions, known, findings)
    if printed and not known.options.repetitions:
        findings.notes.append(
            "this form of llama-bench's output has no number of repetitions: "
            + (
                f"n = {DEFAULT_REPETITIONS}, its default, is assumed"
                if repetitions > 1
                else "every deviation is 0, which is one run (-r 1)"
            )
            + "; --repetitions gives it, and -o jsonl keeps every sample"
        )
    builds = list(dict.fromkeys(row.build for row in rows))
    if len(builds) > 1:
        findings.notes.append(f"{len(builds)} builds are in this file: {', '.join(builds)}")
    for setting in dict.fromkeys(setting for row in rows for setting in row.unresolved):
        findings.notes.append(f"{setting} was requested; the value that ran is unknown")


def _judge_bench(
    row: BenchRow, name: str, repetitions: int, known: Known, findings: FileFindings
) -> None:
    if row.rates:
        estimate = rate_of(row.rates, known.options.confidence, "repetitions")
        mean, sd, n = coefficient_of_variation(row.rates)
    else:
        mean, sd = row.mean_rate, max(row.sd_rate or 0.0, row.resolution)
        n = 1 if row.sd_rate is None else repetitions
        estimate = summary_interval_t(
            mean, sd, n, known.options.confidence, unit=_RATE, counted="repetitions"
        )
        estimate = widened(estimate, row.resolution)
    findings.measured(name, estimate)
    if row.sd_rate is None:
        found = f"{mean:.4g} is printed without its deviation, so its spread is unknown"
        findings.add(name, Guard.SPREAD.finding(found, "the deviation of two runs or more"))
    else:
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
    if row.model_bytes:  # all tensors: at least the bytes of a step
        low = guards.roofline_low(rate, row.model_bytes, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        findings.add(name, low)


def _judge_log(log: Log, known: Known, findings: FileFindings) -> None:
    _show_what_ran(log, findings)
    _judge_errors(log, findings)
    _judge_benches(log.bench.rows, known, findings)
    judge_loads(log.load, known, findings)
    _show_quoted(log, known, findings)
    for prefix, (scored, _) in _numbered(log.perplexities, log.titles_of("scores")):
        _judge_perplexity(scored, prefix, known, findings)
    speculations = log.speculations
    for prefix, (run, models) in _numbered(speculations, log.titles_of("drafting")):
        _judge_speculation(run, prefix, models, known, findings)
    for program, requests in log.timed.items():
        suffix = f", {program}" if len(log.timed) > 1 else ""
        for title, its_requests in grouped(requests, log.titles_of(program)):
            its_suffix = f"{suffix}, {title}" if title else suffix
            _judge_requests(its_requests, its_suffix, known, findings)
    _judge_trials(log, known, findings)
    power_titles = labels(title for title, _ in log.powers)
    for title, (_, power) in zip(power_titles, log.powers, strict=True):
        _judge_power(power, findings, f", {title}" if title else "")
    if log.drafting.is_synthetic:
        asked, ran = {"acceptance": "by the target"}, {"acceptance": "drawn at random"}
        findings.add("log", guards.path_mismatch(asked, ran))
    if not speculations:
        _show_drafters(
            log.drafting.drafters, "", findings, are_exact=not log.drafting.uses_checkpoints
        )
    if log.own.rows:
        judge_table(log.own.rows, known, findings)
    _note_left_out(log, findings)
    if not findings.figures and not findings.guard_findings:
        what = "a llama.cpp log" if log.tools == ("llama.cpp",) else ", ".join(log.tools)
        findings.problem = f"{what} without a measurement"


def _numbered(runs: Sequence[_T], titles: Sequence[Title]) -> Iterator[tuple[str, _T]]:
    """Each run with the prefix of its figures' names: its title, or its number."""
    yield from zip(prefixes(len(runs), labels(titles)), runs, strict=True)


def _show_what_ran(log: Log, findings: FileFindings) -> None:
    roles = ("target", "draft") if log.speculations else ("model",)
    for number, model in enumerate(log.models):
        findings.ran.append((roles[number % len(roles)], _ran(model)))
    if log.remote:
        findings.ran.append(("remote", log.remote))
    if metal := log.metal:
        findings.ran.append(("gpu", metal.text()))
        if log.has_gpu_layers:
            findings.add("log", metal.guard_finding)


def _judge_errors(log: Log, findings: FileFindings) -> None:
    errors = log.errors
    findings.add("log", guards.decode_errors(errors.lines))
    findings.add("log", guards.remote_errors(errors.lines))
    for found in log.unmeasured:
        findings.add("log", Guard.NOT_TIMED.finding(found, "a figure is a number above 0"))
    if crash := errors.crash:
        findings.add("log", _crashed(crash))
    elif trouble := errors.trouble:
        findings.notes.append(f"a program had trouble: {trouble}")
    cut = len(errors.truncated) or sum(
        request.is_cut for requests in log.requests.of.values() for request in requests
    )
    if cut:
        found = f"{cut} {'line says' if cut == 1 else 'lines say'} that a prompt was cut"
        findings.add("log", Guard.CONTEXT_CUT.finding(found, "the server reads the whole prompt"))
    if errors.left_out:
        findings.notes.append(f"{errors.left_out} more error lines are not counted")


def _crashed(line: str) -> GuardFinding:
    found = f"a program ended before it was done: '{line}'"
    return Guard.CRASHED.finding(found, "the program ends by itself")


def _note_left_out(log: Log, findings: FileFindings) -> None:
    """Note the parts of the file that were not read."""
    findings.notes += log.bench.problems[:_MOST_PROBLEMS]
    if more := len(log.bench.problems[_MOST_PROBLEMS:]):
        findings.notes.append(f"{more} more tests of llama-bench were not read")
    if unread := log.unread_rows:
        findings.notes.append(unread)
    if log.ollama.cut:
        findings.notes.append(f"{log.ollama.cut} x {CUT_REPLIES}")
    if log.documents.broken:
        findings.notes.append(f"{log.documents.broken} JSON objects are cut off or broken")
    if log.requests.left_out:
        findings.notes.append(f"{log.requests.left_out} more requests are not counted")


def _show_quoted(log: Log, known: Known, findings: FileFindings) -> None:
    quoted = [figure for figure in log.quoted if not figure.is_lost]
    for name, figure in zip(quoted_names(quoted), quoted, strict=True):
        if figure.samples:
            findings.measured(name, rate_of(figure.samples, known.options.confidence, "runs"))
        else:
            findings.measured(name, text=figure.text)
        if figure.ratio:
            found = f"{figure.text.split()[0]} is printed, the rates give {figure.ratio:.4g}"
            findings.add(name, Guard.UNEQUAL_DEFINITION.finding(found, "B's rate over A's"))
    if any(figure.tool == BENCHY for figure in log.quoted):
        findings.notes.append(
            "llama-benchy is an HTTP client and not llama-bench: pp divides the prompt's tokens by "
            "the time to the first response; it runs each test three times by default"
        )
    for task, share, n, planned in log.tasks.results():
        estimate = _accuracy(share, n, known.options.confidence)
        findings.measured(f"{task} accuracy", estimate)
        if planned:
            findings.add(task, guards.path_mismatch({"tasks": planned}, {"tasks": n}))


def _accuracy(share: float, n: int, confidence: float) -> Estimate:
    """The share of n questions, with Wilson's interval, in percent."""
    bounds = wilson_bounds(share, n, z_quantile(confidence))
    low, high = (100 * bound for bound in bounds)
    return Estimate(
        100 * share, low, high, n, method="share, Wilson", unit="%", counted="questions",
        confidence=confidence,
    )  # fmt: skip


def _ran(model: ModelFacts) -> str:
    devices = ", ".join(f"{name} ({what})" for name, what in model.devices)
    return "; ".join(filter(None, [str(model), devices, model.placement]))


def _judge_perplexity(
    run: PerplexityRun, prefix: str, known: Known, findings: FileFindings
) -> None:
    nll, name = run.chunk_nll, f"{prefix}PPL"
    for statistic in run.statistics:
        unit, error = statistic.unit, statistic.error
        text = f"{statistic.value:g}{unit}"
        if error is not None:
            text += f" ± {error:g}{unit}, one standard error, tokens as independent"
        findings.measured(prefix + statistic.name, text=text)
    if run.not_finite:
        rule = "every PPL is a number"
        findings.add(name, Guard.BROKEN_LOGITS.finding(run.not_finite, rule))
    elif run.gap and not run.lacks_chunks:
        findings.notes.append(prefix + run.gap)
    n_planned = run.planned_chunks
    is_short = run.final and run.final[1] and 0 < len(nll) < LEAST_CHUNKS
    if run.final and (run.lacks_chunks or is_short):
        if not run.lacks_chunks:
            findings.add(name, _unfinished(run))
        elif nll and n_planned in {None, len(nll)}:
            asked, ran = (
                {"PPL of all chunks": run.final[0]},
                {"PPL of all chunks": run.running_ppl[-1]},
            )
            findings.add(name, guards.path_mismatch(asked, ran))
        elif nll:
            findings.notes.append(
                f"{prefix}{len(nll)} of {n_planned} chunks can be read; the final estimate is shown"
            )
        final, its_error = run.final
        spread = "" if its_error is None else f" ± {its_error:g}, one standard error"
        findings.measured(name, text=f"{final:.6g}{spread}, as printed, unpaired")
        return
    findings.add(name, _unfinished(run))
    if nll:
        log_ppl = chunk_mean_interval([[v] for v in nll], known.options.confidence, unit="")
        log_ppl = widened(log_ppl, run.rounding)
        findings.measured(name, _exponential(log_ppl), "unpaired; compare paired figures")


def _unfinished(run: PerplexityRun) -> GuardFinding | None:
    """Trip if fewer chunks ran than were planned."""
    if run.planned_chunks is None or run.statistics:
        return None
    asked, ran = {"chunks": run.planned_chunks}, {"chunks": len(run.running_ppl)}
    return guards.path_mismatch(asked, ran)


def _exponential(log: Estimate) -> Estimate:
    def exp(x: float) -> float:
        return math.exp(x) if x < 700 else math.inf

    return replace(log, point=exp(log.point), low=exp(log.low), high=exp(log.high))


def _judge_speculation(
    run: SpeculationRun,
    prefix: str,
    models: Sequence[ModelFacts],
    known: Known,
    findings: FileFindings,
) -> None:
    if prefix:
        findings.ran.append((prefix.removesuffix(": "), f"k = {run.k}"))
    if run.rate:
        findings.measured(f"{prefix}TG", text=f"{run.rate:.4g} tok/s in one run: no interval")
    if (verified := run.first_verified) and verified[2]:
        findings.measured(f"{prefix}acceptance", text=_share(*verified))
    if run.rounds:
        emitted = f"{run.n_predict / run.rounds:.3g} tokens emitted in each of {run.rounds}"
        findings.measured(f"{prefix}rounds", text=emitted)
    findings.add(f"{prefix}text", guards.degenerate_output(run.text.splitlines()))
    if run.undecoded_drafts:
        findings.notes.append(
            f"{prefix}{run.undecoded_drafts} of {run.n_drafted} drafted tokens have no decode of "
            "the draft behind them, by the log's own counters"
        )
    if run.uses_checkpoints:
        findings.notes.append(
            f"{prefix}the tool verifies accepted tokens again from checkpoints and counts those "
            f"alone: {run.n_accept} of {run.n_drafted}, as it prints, is no acceptance rate"
            + ("" if run.verified else "; a log at -lv 5 has every round")
        )
    if run.rate and models:
        _judge_rounds(run, prefix, models, known, findings)
    _show_drafters(run.drafters, prefix, findings, are_exact=not run.uses_checkpoints)


def _judge_rounds(
    run: SpeculationRun,
    prefix: str,
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
        findings.add(f"{prefix}TG, rounds of target and draft", high)
    alone = known.rate_alone(target.file_name, devices)
    longest, verified = run.longest_draft, run.first_verified
    if alone and run.rate and longest and verified and 0 <= verified[1] <= verified[2] > 0:
        draft_alone = known.rate_alone(draft.file_name, devices) if draft else None
        findings.add(
            f"{prefix}TG",
            guards.sd_bound(
                run.rate, alone, k=longest, drafted=verified[2], accepted=verified[1],
                c=alone / draft_alone if draft_alone else 0.0,
            ),
        )  # fmt: skip


def _share(least: int, most: int, drafted: int) -> str:
    low, high = f"{least / drafted:.2%}", f"{most / drafted:.2%}"
    return f"{low if low == high else f'{low} to {high}'} of {drafted} drafted tokens"


def _show_drafters(
    drafters: Sequence[Drafter], prefix: str, findings: FileFindings, *, are_exact: bool
) -> None:
    if not drafters:
        return
    findings.ran.append((f"{prefix}drafts", ", ".join(drafter.kind for drafter in drafters)))
    if len(drafters) > 1 and are_exact:
        for drafter in drafters:
            share = _share(drafter.n_accepted, drafter.n_accepted, drafter.n_drafted)
            findings.measured(f"{prefix}acceptance, {drafter.kind}", text=share)


def _judge_requests(
    requests: Sequence[Request], suffix: str, known: Known, findings: FileFindings
) -> None:
    confidence = known.options.confidence
    rates = [rate for request in requests if (rate := request.rate)]
    prompts = [rate for r in requests if r.prompt and (rate := r.prompt.rate)]
    for name, samples in (("TG", rates), ("PP", prompts)):
        if samples:
            findings.measured(name + suffix, rate_of(samples, confidence, "requests"))
    drafted = sum(request.n_drafted for request in requests)
    if drafted:
        accepted = sum(request.n_accepted for request in requests)
        findings.measured(f"acceptance{suffix}", text=_share(accepted, accepted, drafted))
    _note_counting(requests, findings)


def _note_counting(requests: Sequence[Request], findings: FileFindings) -> None:
    counting = [r.generated.n_tokens for r in requests if r.counts_first_token]
    if counting:
        excess = max(1 / (n - 1) for n in counting if n > 1)
        findings.notes.append(
            f"this release divides n tokens by the time of n - 1 steps: printed rates are up to "
            f"{excess:.2%} above TG; other releases do not"
        )


def _judge_trials(log: Log, known: Known, findings: FileFindings) -> None:
    mlx, titles = log.mlx, log.titles_of("mlx")
    if not mlx.trials:
        return
    by_size: dict[tuple[int, int, int, bool, str], list[MlxTrial]] = {}
    for trial, title in zip(mlx.trials, labels(titles), strict=True):
        key = trial.n_prompt, trial.n_gen, trial.batch, trial.is_average, title
        by_size.setdefault(key, []).append(trial)
    for (n_prompt, n_gen, batch, _, title), trials in by_size.items():
        suffix = f" in batches of {batch}" if batch > 1 else ""
        suffix += ", average" if trials[0].is_average else ""
        suffix += f", {title}" if title else ""
        generated = [rate for trial in trials if (rate := trial.rate)]
        prompts = [trial.prompt_rate for trial in trials if trial.prompt_rate]
        for name, samples in (
            (f"{f'tg{n_gen}' if n_gen else 'TG'}{suffix}", generated),
            (f"{f'pp{n_prompt}' if n_prompt else 'PP'}{suffix}", prompts),
        ):
            if samples:
                estimate = rate_of(samples, known.options.confidence, "trials")
                findings.measured(name, estimate)
            if len(samples) > 1:
                findings.add(name, guards.spread(*coefficient_of_variation(samples)))
    if any(not trial.n_gen for trial in mlx.trials):
        findings.notes.append("the sizes are not in these lines: rates are as mlx_lm prints them")
    findings.notes.append(
        "mlx_lm divides n generated tokens by the time of n - 1 steps, which is corrected here; "
        "its prompt rate includes the first decode"
    )
    if mlx.is_cut_short and log.errors.trouble:
        findings.add("log", _crashed(log.errors.trouble))
    elif mlx.is_cut_short:
        findings.notes.append("the benchmark did not finish: it printed no averages")


def _judge_power(power: PowerLog, findings: FileFindings, suffix: str = "") -> None:
    findings.ran.append(("machine", power.machine or "unknown"))
    for rail, sums in power.rails.items():
        mean_w = sums.energy_j / power.elapsed_s
        findings.measured(
            f"{rail.upper()} energy{suffix}",
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
    if len(levels) < len(power.thermal):
        findings.notes.append("thermal pressure is not in all samples, so it is unknown")
    if power.broken:
        findings.notes.append(f"{power.broken} samples are cut off or broken and were skipped")
    findings.notes.append("rails are modelled, not metered; memory and the wall are not in them")


def judge_table(rows: Sequence[TableRow], known: Known, findings: FileFindings) -> None:
    """Apply the guards to each row, and compare builds with their baseline."""
    for row in rows:
        _judge_row(row, known, findings)
    baselines = {row.workload: row for row in rows if row.is_baseline}
    for row in rows:
        baseline = baselines.get(row.workload)
        if baseline is not None and not row.is_baseline:
            guard_finding = guards.identical_to_baseline(row.compared, baseline.compared)
            findings.add(f"{row.label} and {baseline.label}", guard_finding)
    findings.notes.append("a table without raw figures: it shows only what its author kept")


def _judge_row(row: TableRow, known: Known, findings: FileFindings) -> None:
    numbers = row.numbers
    rate, sd = numbers.get("rate"), numbers.get("rate sd")
    size = "".join(f"{test}{numbers[n]:g} " for test, n in _SIZES if numbers.get(n))
    if rate:
        spread = "" if sd is None else f" ± {sd:.3g}"
        drafted, accepted = numbers.get("drafted"), numbers.get("accepted", 0.0)
        share = f", acceptance {accepted / drafted:.2%}" if drafted else ""
        ttft = numbers.get("TTFT ms")
        share += "" if ttft is None else f", TTFT {ttft:.4g} ms"
        findings.measured(f"{size}{row.label}", text=f"{rate:.4g}{spread} tok/s{share}")
        if ttft == 0:
            rule = "a reply takes longer than 0 ms"
            findings.add(f"{size}{row.label}", Guard.NOT_TIMED.finding("TTFT is 0 ms", rule))
        if drafted and accepted > drafted:
            found = f"{accepted:g} of {drafted:g} drafted tokens were accepted"
            finding = Guard.SD_BOUND.finding(found, "no more are accepted than drafted")
            findings.add(f"{size}{row.label}", finding)
        if sd is not None:
            repetitions = known.options.repetitions or DEFAULT_REPETITIONS
            findings.add(f"{size}{row.label}", guards.spread(rate, sd, repetitions))
        _judge_table_speculation(row, rate, known, findings)
    elif "PPL" in numbers:
        se = f" ± {numbers['PPL se']:.3g}, unpaired" if "PPL se" in numbers else ""
        findings.measured(f"PPL {row.label}", text=f"{numbers['PPL']:.5g}{se}")
    else:
        findings.notes.append(f"{row.label}: no figure")


_SIZES = (("pp", "n_prompt"), ("tg", "n_gen"))


def _judge_table_speculation(
    row: TableRow, rate: float, known: Known, findings: FileFindings
) -> None:
    """Check a rate against the target alone, if one of the files has that."""
    k, drafted = int(row.numbers.get("k", 0)), int(row.numbers.get("drafted", 0))
    accepted = int(row.numbers.get("accepted", 0))
    machines = [row.words.get("machine", "")]
    alone = known.rate_alone(row.words.get("target", ""), machines)
    if not alone or k < 1 or not 0 <= accepted <= drafted or drafted < 1:
        return
    draft_alone = known.rate_alone(row.words.get("draft", ""), machines)
    c = alone / draft_alone if draft_alone else 0.0
    guard_finding = guards.sd_bound(rate, alone, k=k, drafted=drafted, accepted=accepted, c=c)
    findings.add(row.label, guard_finding)
