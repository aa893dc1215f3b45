"""Measurements as tables: every count and time of each model and variant; speculation by k."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pytest_asperf.analysis.facts import Compared, ComparedChunks, ComparedPairs, Ran
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.records.kinds import (
    AnyRecord,
    ChunkFacts,
    EnergyRecord,
    MemoryRecord,
    Noted,
    PhaseFacts,
    QuantRecord,
    RunFacts,
    SpeculationRecord,
    ThroughputRecord,
)
from pytest_asperf.report.lines import first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRun:
    """One run of a variant in a pair."""

    pair: int  #: number of the pair, from 0
    parts: int  #: that the run was timed in
    n_tokens: int  #: tokens of one part
    elapsed_ns: int | None = None  #: time of one part
    energy_nj: int | None = None  #: energy of one part, if that is compared


@dataclass(frozen=True, slots=True)
class ChunkChange:
    """The candidate's mean NLL of a chunk less the baseline's."""

    delta_nll: float


Run: TypeAlias = RunFacts | VariantRun | ChunkFacts | ChunkChange | PhaseFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the table."""

    row: int  #: place of its record in the report, from 0
    test: str  #: that noted it
    machine: str  #: name of the machine, if there are several
    workload: str  #: the timed or scored work
    variant: str = ""  #: the variant in a comparison; empty if nothing was compared
    model: str  #: its name
    title: str  #: its own name in its file
    sha256: str  #: of the file
    engine: str  #: library and version
    backend: str  #: buffers of the weights
    settings: str  #: the requested settings, `key=value,…`
    threads: int | None  #: that computed
    size_bytes: int | None  #: of the weights
    n_params: int | None  #: parameters of the model
    value: float | None = None  #: the estimate; for a variant in pairs the median of its runs
    low: float | None = None  #: lower bound of the estimate's interval
    high: float | None = None  #: upper bound of the estimate's interval
    unit: str = ""  #: of the estimate
    n: int = 0  #: independent observations that it rests on
    counted: str = ""  #: the unit of `n`, in the plural
    runs: tuple[Run, ...] = ()  #: every count and time


def table(rows: Sequence[Noted]) -> list[Entry]:
    """The entries of a report's records: two of a comparison, one of another measurement."""
    return [
        replace(entry, row=number, test=noted.test, machine=noted.machine)
        for number, noted in enumerate(rows)
        for entry in entries(noted)
    ]


def entries(noted: Noted) -> Iterator[Entry]:
    """The entries of one record."""
    match noted.record:
        case Verdict(compared=compared) | SpeculationRecord(comparison=compared):
            if compared is not None:
                yield from _compared(compared)
        case ThroughputRecord() as of:
            yield _entry(of.workload, of.ran, of.estimate, of.runs)
        case QuantRecord() as of:
            yield _entry(first_line(noted).subject, of.ran, of.delta_ppl, of.chunks)
        case EnergyRecord() as of:
            yield _entry(of.workload, of.ran, of.joules_per_token, of.phases)
        case MemoryRecord() as of:
            line = first_line(noted)
            yield _entry(line.subject, of.ran, line.estimate)


def _compared(compared: Compared) -> Iterator[Entry]:
    if isinstance(compared, ComparedPairs):
        yield from (_variant(compared, nth) for nth in (0, 1))
    elif isinstance(compared, ComparedChunks) and compared.delta_nll:
        runs = tuple(map(ChunkChange, compared.delta_nll))
        made = replace(_entry("ppl", compared.ran[1], None, runs), variant="candidate - baseline")
        yield replace(made, n=len(runs), unit="nats", counted="chunks")


def _variant(compared: ComparedPairs, nth: int) -> Entry:
    """One variant of pairs, with the median of its runs."""
    cost = "energy_nj" if compared.cost_unit == "nJ" else "elapsed_ns"
    runs = tuple(
        VariantRun(pair=number, parts=pair.parts, n_tokens=pair.n_tokens[nth], **{cost: value})
        for number, pair in enumerate(compared.pairs)
        for value in (pair.baseline, pair.candidate)[nth]
    )
    variant = compared.variants[nth]
    # If two workloads are compared, the variants are named by them.
    workload = variant if compared.timed in compared.variants else compared.timed
    return replace(
        _entry(workload, compared.ran[nth], None, runs),
        variant=variant,
        model=compared.models[nth],
        value=compared.medians[nth],
        unit=compared.unit,
        n=len(runs),
        counted="runs",
    )


def _entry(workload: str, ran: Ran, estimate: Estimate | None, runs: Iterable[Run] = ()) -> Entry:
    made = Entry(
        row=0,
        test="",
        machine="",
        workload=workload,
        model=ran.model,
        title=ran.title,
        sha256=ran.sha256,
        engine=ran.release,
        backend=",".join(ran.backend),
        settings=",".join(f"{key}={text}" for key, text in ran.settings.items()),
        threads=ran.threads,
        size_bytes=ran.size_bytes,
        n_params=ran.n_params,
        runs=tuple(runs),
    )
    if estimate is None:
        return made
    low, high = (estimate.low, estimate.high) if estimate.has_interval else (None, None)
    return replace(
        made,
        value=estimate.point,
        low=low,
        high=high,
        unit=estimate.unit,
        n=estimate.n,
        counted=estimate.counted,
    )


def speculation_of(records: Iterable[AnyRecord]) -> list[SpeculationRecord]:
    """Each measurement of speculation once, though each of several tests notes it."""
    measured = (record for record in records if isinstance(record, SpeculationRecord))
    distinct = {(record.label, record.gain, record.facts): record for record in measured}
    return list(distinct.values())


def predicted_at(measured: SpeculationRecord, ratio: float) -> float:
    """The gain predicted for a draft of another speed that is accepted as often."""
    drafting = measured.drafting * measured.ratio.point / ratio
    return measured.mean_length / (drafting + measured.verifying) - 1


def cells(measured: SpeculationRecord) -> tuple[str, ...]:
    """Ratio, gain, predicted gain, acceptance, break-even and best k as text."""
    return (
        ratio_text(measured.ratio.point),
        "INVALID" if measured.is_invalid else _gain_text(measured.gain),
        _gain_text(measured.predicted_gain),
        f"{100 * measured.acceptance:.1f} %",
        ratio_text(measured.break_even_ratio),
        f"{measured.best_k}: {100 * measured.best_k_gain:+.1f} %",
    )


def explanation(measured: SpeculationRecord) -> str:
    """The reasons of the gain: acceptance, speeds, and the gain that they predict."""
    ratio, _, predicted, accepted, even, best = cells(measured)
    invalid = "INVALID: " if measured.is_invalid else ""
    return (
        f"{invalid}{accepted} accepted, {measured.mean_length:.2f} tokens a round, ratio {ratio}, "
        f"break-even {even}, predicted {predicted}, best k={best}"
    )


def ratio_text(ratio: float | None) -> str:
    """A speed ratio, or that there is none."""
    if ratio is None:
        return "none"
    return f"{ratio:,.0f} x" if ratio >= 1000 else f"{ratio:.3g} x"


def closed(estimate: Estimate) -> Estimate:
    """The estimate, with its point instead of unknown bounds."""
    if estimate.has_interval:
        return estimate
    return replace(estimate, low=estimate.point, high=estimate.point)


def _gain_text(gain: Estimate) -> str:
    of = closed(gain)
    interval = f" [{100 * of.low:.1f}, {100 * of.high:.1f}]" if of.low < of.high else ""
    return f"{100 * gain.point:+.1f} %{interval}"
