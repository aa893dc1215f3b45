"""assert_*: judge a measurement, note the verdict, and raise unless it is a PASS."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.intervals import (
    chunk_difference_interval,
    delta_ppl,
    neighbour_estimates,
    paired_change_interval,
    shared_confidence,
    unpaired_change_interval,
)
from pytest_asperf.analysis.verdict import (
    Outcome,
    Subject,
    Verdict,
    guarded,
    judge_above,
    judge_below,
    judge_invalid,
    judge_monotonic,
    judge_pareto,
    judge_within,
    parse_percent,
)
from pytest_asperf.api.handles import Engines, Ladder, Perplexity, Reading, Throughput
from pytest_asperf.errors import ConfigError, VerdictError, listing, shown, suggest
from pytest_asperf.measure.engine_matching import BITS_WITHIN
from pytest_asperf.measure.validity import twin_trips
from pytest_asperf.report.rows import verdict_row
from pytest_asperf.verdicts.gate import faster_verdict
from pytest_asperf.verdicts.readings import vetted, vetted_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.api.handles import GatedWorkloads, MeasurementContext

Direction = Literal["rising", "falling"]

#: From the best to the worst.
_SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.INVALID, Outcome.FAIL)

#: Quantities of a ladder by name, for `assert_monotonic` and `assert_pareto_optimal`; any
#: workload's name stands for its rate.
_SCORES = {"ppl": metrics.PPL, "kld": metrics.KLD, "size": metrics.SIZE}


#: What to do where two levels that are compared are one.
OTHER_LEVELS: Final = "name levels that differ, or the file that holds each"

_RATE: Final = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*tok/s", re.ASCII)


def assert_throughput(
    throughput: Throughput | Reading,
    *,
    at_least: str | float | None = None,
    at_most: str | float | None = None,
) -> Verdict:
    """Claim that a rate lies within limits.

    If loading is cheap, each run is from a fresh load, and the interval covers differences between
    loads. The verdict says which it was.

    Args:
        throughput: the fixture (its tg128 is taken), or one reading.
        at_least: lower limit, `"40 tok/s"` or a number of tok/s.
        at_most: upper limit, likewise.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no limit, or one that is not a rate in tok/s.
    """
    __tracebackhide__ = True
    low, high = _rate(at_least, "at_least"), _rate(at_most, "at_most")
    reading = _reading(throughput)
    verdict = judge_within(reading.rate, reading.subject(), at_least=low, at_most=high)
    return settle(vetted(verdict, reading, (low, high)), reading.measurement)


def assert_ppl_delta(
    perplexity: Perplexity,
    *,
    below: str | float | None = None,
    above: str | float | None = None,
) -> Verdict:
    """Claim that a level's ΔPPL against its baseline is below, or above, a limit.

    Args:
        perplexity: the fixture, or a level of a ladder.
        below: the limit, `"1%"` or a fraction.
        above: the same, for a claim that a level is worse than that.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: not exactly one limit was given, or it is not a percentage.
    """
    __tracebackhide__ = True
    if (below is None) == (above is None):
        raise ConfigError(
            "assert_ppl_delta needs exactly one of below and above",
            why="the limit is the claim",
            remedy='write assert_ppl_delta(perplexity, below="1%")',
        )
    subject = perplexity.subject("ΔPPL")
    if below is not None:
        limit = parse_percent(below, where="assert_ppl_delta: below", negative=True)
        verdict = judge_below(perplexity.delta_ppl, limit, subject)
    else:
        limit = parse_percent(above, where="assert_ppl_delta: above", negative=True)
        verdict = judge_above(perplexity.delta_ppl, limit, subject)
    return settle(
        guarded(verdict, perplexity.guard_findings, remedy=OTHER_LEVELS), perplexity.measurement
    )


def assert_bandwidth_utilization(
    throughput: Throughput | Reading,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Verdict:
    """Claim that TG uses a share of the memory bandwidth within limits.

    Utilisation is TG times bytes read per token / bandwidth. More than 1.0 is impossible for a
    model that is read from memory, but not for one that stays in the processor's cache.

    Args:
        throughput: the fixture (its tg128 is taken), or one TG reading.
        at_most: upper limit, a fraction.
        at_least: lower limit, a fraction.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: a prompt workload, or no limit.
        HardwareError: the bandwidth is not known.
    """
    __tracebackhide__ = True
    reading = _reading(throughput)
    n_bytes = reading.result.bytes_per_token
    if reading.result.workload.kind != "tg" or n_bytes is None:
        raise ConfigError(
            f"bandwidth utilisation is not defined for {reading.workload}",
            why="a prompt's batch reads each weight once for many tokens",
            remedy='use a generation workload such as throughput("tg128"), of a model whose '
            "tensors have the usual names",
        )
    ceiling = reading.measurement.ceiling(reading.result)
    share = metrics.bandwidth_utilisation(reading.rate, n_bytes, ceiling.gbs)
    subject = reading.subject(f"utilisation of {ceiling.gbs:.4g} GB/s ({ceiling.kind}) by")
    verdict = judge_within(share, subject, at_least=at_least, at_most=at_most)
    if ceiling.doubt:
        remedy = "name this machine's chip with --asperf-hardware, or leave it out"
        verdict = judge_invalid(subject, verdict.threshold, [ceiling.doubt], remedy=remedy)
    elif verdict.outcome is not Outcome.PASS and n_bytes <= ceiling.cache_bytes:
        problem = (
            f"{share.text()}, but the {n_bytes / 1e6:.1f} MB that a step reads fit in the "
            f"{ceiling.cache_bytes / 1e6:.1f} MB last-level cache: memory does not bound it"
        )
        remedy = "measure a model several times the cache's size"
        verdict = judge_invalid(subject, verdict.threshold, [problem], remedy=remedy)
    unit = share.point / reading.rate.point
    return settle(vetted(verdict, reading, (at_least, at_most), unit=unit), reading.measurement)


def assert_monotonic(
    series: Ladder | Sequence[Reading],
    quantity: str | None = None,
    *,
    direction: Direction = "rising",
) -> Verdict:
    """Claim that a quantity rises, or falls, from each level or reading to the next.

    Args:
        series: a ladder in its marker's order, or readings in the claimed order.
        quantity: of a ladder, `ppl`, `kld`, `size` or a workload such as `tg128`.
        direction: `rising` or `falling` along the order.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantity, or fewer than two to compare.
        AsperfError: a level could not be measured.
    """
    __tracebackhide__ = True
    if direction not in {"rising", "falling"}:
        raise unknown_word("direction", str(direction), ("rising", "falling"))
    details: tuple[str, ...] = ()
    readings: list[Reading] = []
    guard_findings: tuple[GuardFinding, ...] = ()
    if isinstance(series, Ladder):
        labels, measurement = list(series.levels), series.measurement
        _require_two(labels)
        quantity = quantity or "kld"
        differences = _ladder_differences(series, quantity)
        subject = series.subject(quantity)
        guard_findings = _scored_trips(series, [quantity])
    else:
        readings = list(series)
        labels = [f"{r.workload} {r.result.ran.model}" for r in readings]
        details = tuple(
            f"{label} from {reading.rate.n} {reading.rate.counted}"
            for label, reading in zip(labels, readings, strict=True)
        )
        _require_two(labels)
        measurement = readings[0].measurement
        rates = [reading.result.rates for reading in readings]
        differences = neighbour_estimates(rates, unpaired_change_interval)
        subject = Subject("rate", "live", readings[0].result.ran.rows())
    verdict = judge_monotonic(labels, differences, subject, direction=direction)
    verdict = guarded(replace(verdict, details=details), guard_findings, remedy=OTHER_LEVELS)
    return settle(vetted_order(verdict, readings), measurement)


def assert_pareto_optimal(
    ladder: Ladder,
    level: str,
    objectives: Sequence[str] = ("size", "tg128", "ppl"),
) -> Verdict:
    """Claim that a level is on the Pareto front: none is as good in all objectives, better in one.

    Args:
        ladder: the levels.
        level: the one the claim is about.
        objectives: of `ppl`, `kld`, `size` and workloads such as `tg128`.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such level or objective, or nothing to compare with.
        AsperfError: a level could not be measured.
    """
    __tracebackhide__ = True
    ladder.require(level)
    _require_two(ladder.levels)
    if not objectives:
        raise ConfigError(
            "no objective to compare levels by",
            why="with none, every level is as good as any other",
            remedy="name some of ppl, kld, size and workloads such as tg128",
        )
    others = [other for other in ladder.levels if other != level]
    confidence = shared_confidence(DECISION_CONFIDENCE, len(others) * len(objectives))
    differences = {
        other: [_difference(ladder, o, level, other, confidence) for o in objectives]
        for other in others
    }
    subject = ladder.subject(f"{level} of")
    chosen = [metric_of(objective) for objective in objectives]
    verdict = judge_pareto(differences, chosen, subject)
    guard_findings = _scored_trips(ladder, objectives)
    return settle(guarded(verdict, guard_findings, remedy=OTHER_LEVELS), ladder.measurement)


def assert_no_regression(
    gate: GatedWorkloads, *, tolerance: str | float | None = None, ppl_below: str | float = "1%"
) -> tuple[Verdict, ...]:
    """Claim that the candidate build is no worse than the baseline.

    Args:
        gate: what is gated.
        tolerance: slowdown that is accepted, `"5%"` or a fraction; `--asperf-tolerance` by default.
        ppl_below: ΔPPL of the same file that is accepted, where the gate has `ppl`.

    Returns:
        The verdict on each workload, all PASS.

    Raises:
        VerdictError: a verdict is not a PASS; the gravest is raised, all are noted.
        AsperfError: an arm died or refused, or the builds make different tokens.
    """
    __tracebackhide__ = True
    share = None
    if tolerance is not None:
        share = parse_percent(tolerance, where="assert_no_regression: tolerance")
    limit = parse_percent(ppl_below, where="assert_no_regression: ppl_below")
    verdicts: list[Verdict] = []
    interrupted = False
    for judged in gate.judged(share, limit):
        verdicts.append(judged.verdict)
        gate.measurement.record(verdict_row(judged.verdict, judged.note))
        interrupted |= judged.interrupted
    if interrupted:
        raise KeyboardInterrupt
    gravest = max(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome))
    if gravest.outcome is not Outcome.PASS:
        raise VerdictError(gravest)
    return tuple(verdicts)


def assert_faster(
    engines: Engines,
    faster: str = "",
    *,
    than: str,
    on: str,
    by: str | float = 0.0,
    bits_within: str | float = BITS_WITHIN,
) -> Verdict:
    """Claim that one engine is faster than another on the same weights at matched levels.

    Both run in pairs until the answer is decided, as the builds of a gate do. The verdict lists
    what is matched between the engines and what is not.

    Args:
        engines: the fixture; its model and level are those of the test's markers, F16 by default.
        faster: the engine claimed to be faster, `"mlx"`. If it does not have the level, it runs the
            nearest in bits per weight; `"mlx:4bit"` names one.
        than: the engine claimed to be slower, likewise.
        on: the workload: `"tg128"`, `"pp512"`, `"tg128@d1024"`, `"ttft512"`.
        by: how much faster it is claimed to be, `"10%"` or a fraction of the other's rate.
        bits_within: by how much the bits per weight of the two files may differ.

    Returns:
        The verdict, a PASS.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such engine or level, the same engine twice, or no level that matches.
        AsperfError: a model that an engine cannot have, or an engine that is missing or died.
    """
    __tracebackhide__ = True
    if not isinstance(engines, Engines) or not faster:  # type: ignore[redundant-expr]  # or a name
        raise ConfigError(
            "assert_faster needs the fixture engines, and then the engine claimed to be faster",
            why="which model is measured, and where it is noted, comes from the test's fixture",
            remedy="let the test take engines, and write "
            'assert_faster(engines, "mlx", than="llama_cpp", on="tg128")',
        )
    least = parse_percent(by, where="assert_faster: by")
    within = parse_percent(bits_within, where="assert_faster: bits_within")
    versus = engines.duel(faster, than, on, by=least, bits_within=within)
    verdict = faster_verdict(versus)
    engines.record(verdict_row(verdict, "\n".join(verdict.details[:2])))
    if versus.duel.interrupted:
        raise KeyboardInterrupt
    if verdict.outcome is not Outcome.PASS:
        raise VerdictError(verdict)
    return verdict


def settle(verdict: Verdict, measurement: MeasurementContext) -> Verdict:
    """Note a verdict, and raise unless it is a PASS."""
    __tracebackhide__ = True
    measurement.record(verdict_row(verdict))
    if verdict.outcome is not Outcome.PASS:
        raise VerdictError(verdict)
    return verdict


def _reading(throughput: Throughput | Reading) -> Reading:
    return throughput() if isinstance(throughput, Throughput) else throughput


def _rate(limit: object, where: str) -> float | None:
    """Read a limit in tok/s: `"40 tok/s"` or a number."""
    if limit is None:
        return None
    rate = math.nan
    if isinstance(limit, str):
        if match := _RATE.fullmatch(limit.strip()):
            rate = float(match["number"])
    elif isinstance(limit, int | float) and not isinstance(limit, bool):
        rate = limit
    if not 0 < rate < math.inf:
        raise ConfigError(
            f"assert_throughput: {where}: {shown(limit)} is not a rate in tok/s",
            why="readings are in tok/s, and a limit in another unit would judge another quantity",
            remedy='write "40 tok/s", or 40.0',
        )
    return float(rate)


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise ConfigError(
            f"nothing to compare: {len(labels)} of at least two",
            why="an order needs two members",
            remedy="name more levels in the marker, or give more readings",
        )


def metric_of(quantity: str) -> metrics.Metric:
    """Return what a ladder's quantity is: `ppl`, `kld`, `size` or a workload.

    Raises:
        ConfigError: no such quantity.
    """
    if quantity in _SCORES:
        return _SCORES[quantity]
    if quantity[:2] in {"tg", "pp"}:
        return metrics.TG if quantity.startswith("tg") else metrics.PP
    raise unknown_word("quantity", quantity, (*_SCORES, "tg128", "pp512"))


def unknown_word(what: str, word: str, valid: Sequence[str]) -> ConfigError:
    """Return the error for an argument that is none of the words it may be."""
    return ConfigError(
        f"unknown {what} {shown(word, 80)}{suggest(word, valid)}",
        why="the claim is about it",
        remedy=f"use one of {listing(valid)}",
    )


def _scored_trips(ladder: Ladder, quantities: Sequence[str]) -> tuple[GuardFinding, ...]:
    """Return what guards say of the levels that are compared by their scores, if they are."""
    if not {metric_of(quantity) for quantity in quantities} & {metrics.PPL, metrics.KLD}:
        return ()
    levels = [ladder[name] for name in ladder.levels]
    own = (guard_finding for level in levels for guard_finding in level.guard_findings)
    return (*own, *twin_trips([level.result for level in levels]))


def _ladder_differences(ladder: Ladder, quantity: str) -> tuple[Estimate, ...]:
    confidence = shared_confidence(DECISION_CONFIDENCE, len(ladder.levels) - 1)
    neighbours = zip(ladder.levels, ladder.levels[1:], strict=False)
    return tuple(_difference(ladder, quantity, a, b, confidence) for a, b in neighbours)


def _difference(
    ladder: Ladder, quantity: str, level: str, other: str, confidence: float
) -> Estimate:
    """Return by how much `other` exceeds `level` in a quantity, from paired observations."""
    metric = metric_of(quantity)
    if metric is metrics.SIZE:
        sizes = [ladder[name].result.size_bytes for name in (level, other)]
        return Estimate.exact((sizes[1] - sizes[0]) / 1e6, metrics.SIZE.unit)
    if metric in {metrics.TG, metrics.PP}:
        readings = ladder.readings(quantity)
        rates = [readings[name].result.rates for name in (level, other)]
        return paired_change_interval(rates[0], rates[1], confidence)
    a, b = (ladder[name].result.chunks for name in (level, other))
    if metric is metrics.PPL:
        return delta_ppl([c.nll for c in a], [c.nll for c in b], confidence)
    return chunk_difference_interval(
        [c.kld for c in a], [c.kld for c in b], confidence, unit=metrics.KLD.unit
    )
