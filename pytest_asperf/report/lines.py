"""The one place that puts records into words: a line of a table, and all that a card shows."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from pytest_asperf.analysis.facts import ComparedChunks, ComparedPairs
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.results import JudgedFigure, Words
from pytest_asperf.analysis.speculation_model import (
    acceptance_text,
    best_text,
    break_even_text,
    each_text,
    split_text,
)
from pytest_asperf.analysis.stats.estimate import (
    Estimate,
    counted_text,
    memory_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.verdict import OVERSUBSCRIBED, JudgedRecord, Verdict
from pytest_asperf.records.kinds import (
    AnyRecord,
    BrokenRecord,
    ChunkFacts,
    EnergyRecord,
    Facts,
    MeasurementRecord,
    MemoryRecord,
    Noted,
    PromptFacts,
    QuantRecord,
    SpeculationRecord,
    ThroughputRecord,
)
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text


@dataclass(frozen=True, slots=True)
class Series:
    """Values in the order they were measured, and the estimate that was made of them."""

    label: str
    counted: str
    values: tuple[float, ...]
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A record in words."""

    record: AnyRecord  #: the record
    test: str = ""  #: the test that noted it
    machine: str = ""  #: name of the machine, if a report has several
    model: str = ""  #: the measured model; empty for a verdict
    subject: str  #: the metric, or the assertion's subject
    measured: str  #: the figure with its interval, or the event
    basis: str = ""  #: the basis of the interval
    brief: str = ""  #: the figure in a table
    what: str = ""  #: the name in a table
    threshold: str = ""  #: the assertion's limit; empty for a measurement
    bound: str = ""  #: the limit in a table
    outcome: str = ""  #: the verdict; empty for a measurement
    source: str = "live"  #: where the figures are from
    facts: Facts = ()  #: the run record
    note: str = ""  #: remarks, one a line
    #: a measurement's result; None for verdicts, and for lines that explain others
    estimate: Estimate | None = None
    figures: tuple[JudgedFigure, ...] = ()  #: the judged estimates
    advice: str = ""  #: the remedy
    details: tuple[str, ...] = ()  #: further remarks
    why: str = ""  #: why it is not decided
    #: labels by a plugin: its test's subject
    about: Mapping[str, str] = field(default_factory=dict)
    excused: str = ""  #: why it fails no test; empty if it does
    elapsed_s: float | None = None  #: its duration
    series: tuple[Series, ...] = ()  #: the values behind it
    repeat: str = ""  #: the command that measures it again

    @property
    def pairs(self) -> ComparedPairs | None:
        """The pairs behind a verdict."""
        compared = self.record.compared if isinstance(self.record, Verdict) else None
        return compared if isinstance(compared, ComparedPairs) and compared.pairs else None

    @property
    def builds(self) -> tuple[str, str] | None:
        """The builds of a gate."""
        return self.record.builds if isinstance(self.record, Verdict) else None


def lines(noted: Iterable[Noted]) -> list[Line]:
    """The lines of records in their order; a measurement of speculation has several."""
    return [line for each in noted for line in lines_of(each)]


def first_line(noted: Noted) -> Line:
    """The line that names a record."""
    return next(lines_of(noted))


def lines_of(noted: Noted) -> Iterator[Line]:
    """The lines of one record."""
    record = noted.record
    for line in _in_words(record):
        subject, what = line.subject, line.what or _name(line)
        if noted.apart:
            has_own = line.what or line.model
            subject = f"{subject}, {noted.apart}"
            what = f"{what}, {noted.apart}" if has_own else subject
        yield replace(
            line,
            test=noted.test,
            machine=noted.machine,
            subject=subject,
            what=what,
            outcome=str(record.outcome),
            facts=facts_of(record),
            note=_note(record),
        )


def _in_words(record: AnyRecord) -> Iterator[Line]:
    match record:
        case ThroughputRecord():
            yield _throughput(record)
        case QuantRecord():
            yield _quant(record)
        case EnergyRecord():
            yield _energy(record)
        case MemoryRecord():
            yield _memory(record)
        case SpeculationRecord():
            yield from _speculation(record)
        case Verdict():
            said = in_words(record)
            # Reports once had the guards' findings among the details too.
            remarks = (*said.details, *_guard_texts(record.guards))
            line = _judged(_verdict(record, said), record)
            yield replace(line, details=tuple(dict.fromkeys(remarks)))
        case BrokenRecord(subject=subject, found=found):
            yield _judged(Line(record=record, subject=subject, measured=found, brief=found), record)
        case _:
            assert_never(record)


def _name(line: Line) -> str:
    return " ".join(filter(None, (line.subject, line.model)))


def facts_of(record: AnyRecord) -> Facts:
    """The run record in words."""
    return () if isinstance(record, BrokenRecord) else record.facts


def _note(record: AnyRecord) -> str:
    """The remarks on a record, with a reader's warnings about its run."""
    remarks = [text for label, text in facts_of(record) if label.endswith(OVERSUBSCRIBED)]
    if isinstance(record, MeasurementRecord):
        what = _measured_thing(record)
        remarks = [*(f"{what}: {text}" for text in _guard_texts(record.guards)), *remarks]
    return "\n".join(filter(None, dict.fromkeys((record.note, *remarks))))


def _measured_thing(record: MeasurementRecord) -> str:
    match record:
        case QuantRecord(baseline_name=baseline):
            return f"{record.ran.model} vs {baseline}"
        case SpeculationRecord(label=label):
            return label
        case ThroughputRecord(workload=workload) | EnergyRecord(workload=workload):
            return f"{workload} {record.ran.model}"
        case _:
            return record.ran.model


def _guard_texts(guards: Iterable[GuardFinding]) -> Iterator[str]:
    return map(str, guards)


def _throughput(record: ThroughputRecord) -> Line:
    shown, tail = record.estimate, ""
    if record.prefill_share is not None and record.effective_rate is not None:
        share, rate = record.prefill_share.point, record.effective_rate.point
        tail = f", {percent_text(share)} of it prefill, {number_text(rate)} tok/s in effect"
    elif record.user_rate is not None:
        tail = f" in all, {number_text(record.user_rate.point)} a user"
    return Line(
        record=record,
        model=record.ran.model,
        subject=record.workload,
        measured=shown.text() + tail,
        basis=shown.basis,
        brief=shown.brief(),
        estimate=shown,
    )


def _quant(record: QuantRecord) -> Line:
    ppl, delta, kld = number_text(record.ppl, 4), record.delta_ppl, record.kld_mean
    tail = f", KLD {number_text(kld.point, 2)}" if kld is not None else ""
    return Line(
        record=record,
        model=record.ran.model,
        subject=f"PPL vs {record.baseline_name or record.baseline.model}",
        measured=f"{ppl}, Δ {delta.text()}{tail}",
        basis=delta.basis,
        brief=f"{ppl}, {delta.brief()}{tail}",
        estimate=delta,
    )


def _energy(record: EnergyRecord) -> Line:
    total, net = record.joules_per_token, record.net_joules_per_token
    beyond = f", {net.point:.3g} net of idle" if net is not None else ""
    rails = ", ".join(f"{rail} {of.watts.point:.3g} W" for rail, of in record.rails.items())
    measured = f"{total.text()}{beyond}; {rails}"
    return Line(
        record=record,
        model=record.ran.model,
        subject=record.workload,
        measured=measured,
        basis=f"{total.n} {total.counted}",
        brief=measured,
    )


def _memory(record: MemoryRecord) -> Line:
    sizes = record.weights_bytes, record.kv_bytes, record.compute_bytes
    named = zip(("weights", "KV", "compute"), sizes, strict=True)
    parts = ", ".join(f"{name} {memory_text(size)}" for name, size in named)
    return Line(
        record=record,
        model=record.ran.model,
        subject=f"memory at {counted_text(record.n_ctx, 'tokens')}",
        measured=f"{parts}; peak RSS {memory_text(record.peak_rss_bytes)}",
        basis="1 run",
        brief=memory_text(record.total_bytes),
        estimate=Estimate.exact(record.total_bytes / 2**30, "GiB"),
    )


def _speculation(record: SpeculationRecord) -> Iterator[Line]:
    """The gain, then its explanations."""
    gain, rounds = record.gain, counted_text(record.n_rounds, "rounds")
    pairs = f"{gain.basis} of {counted_text(len(record.categories), 'prompts')}"
    rates = [rate for rate in (record.alone_rate, record.speculative_rate) if rate is not None]
    exact, short = (" → ".join(number_text(rate, n) for rate in rates) for n in (4, 3))
    yield Line(
        record=record,
        model=record.label,
        subject="SD gain",
        measured=f"{gain.text()} ({exact} tok/s)" if rates else gain.text(),
        basis=pairs,
        brief=f"{short} tok/s, {gain.brief()}" if rates else gain.brief(),
        estimate=gain,
    )
    even = break_even_text(record.break_even_ratio, record.mean_length, record.verifying)
    lengths = each_text(record.mean_length_by_category, ".2f")
    costs = ", ".join(f"{size}: {cost.point:.2f}" for size, cost in record.verify.items())
    step = f"; draft step {record.draft_step.point:.3f}" if record.draft_step is not None else ""
    shares = acceptance_text(record.acceptance_by_category, record.acceptance_by_position)
    accepted = f"{100 * record.acceptance:.1f} % ({shares})"
    predicted = f"{record.predicted_gain.text()}, {best_text(record.best_k, record.best_k_gain)}"
    for subject, text, basis in (
        ("acceptance", accepted, rounds),
        ("accepted length", f"{record.mean_length:.2f} tokens/round ({lengths})", rounds),
        ("speed ratio", f"{record.ratio.text()}, {even}", pairs),
        ("C(k) by batch, in steps", f"{costs}{step}", pairs),
        ("predicted SD gain", predicted, pairs),
        ("time with SD", split_text(record.time_split), rounds),
    ):
        about = Line(record=record, model=record.label, subject=subject, measured=text)
        yield replace(about, basis=basis, brief=text)


def _verdict(record: Verdict, said: Words) -> Line:
    bases = [figure.estimate.basis for figure in record.figures if figure.estimate.basis]
    return Line(
        record=record,
        subject=record.subject,
        what=record.subject_brief,
        measured=said.measured,
        brief=said.brief or said.measured,
        basis=said.rests_on or next(iter(bases), ""),
        threshold=said.threshold,
        bound=said.bound or said.threshold,
        source=record.source,
        figures=record.figures,
        why=said.why,
    )


def _judged(line: Line, record: JudgedRecord) -> Line:
    return replace(
        line,
        advice=advice_text(record.advice),
        details=record.details,
        elapsed_s=record.elapsed_s,
        about=record.about,
        excused=record.excused,
    )


def series_of(line: Line) -> tuple[Series, ...]:
    """The values that a record's estimate was made of; nothing for a line that explains another."""
    record, name = line.record, f"{line.model} {line.subject}"
    match record:
        case ThroughputRecord(runs=runs, estimate=of) if runs:
            values = tuple(_run(run.n_tokens, run.elapsed_ns, of.unit) for run in runs)
            return (Series(name, "run", values, of),)
        case QuantRecord(chunks=chunks, delta_ppl=of) if chunks:
            return (Series(name, "chunk", tuple(map(_delta, chunks)), of),)
        case SpeculationRecord(prompts=prompts, gain=of) if line.estimate is not None and prompts:
            return (Series(name, "pair", tuple(map(_gain, prompts)), of),)
        case Verdict(compared=ComparedChunks(delta_nll=nll), figures=figures) if figures:
            values, label = tuple(map(math.expm1, nll)), "ΔPPL by chunk, in the order drawn"
            return (Series(label, "chunk", values, figures[0].estimate),)
        case _:
            return ()


def _run(n_tokens: int, elapsed_ns: int, unit: str) -> float:
    ns = positive(elapsed_ns)
    return ns / 1e6 if unit == "ms" else 1e9 * n_tokens / ns


def _delta(chunk: ChunkFacts) -> float:
    return math.expm1((chunk.nll_sum - chunk.baseline_nll_sum) / positive(chunk.n_tokens))


def _gain(pair: Sequence[PromptFacts]) -> float:
    alone = sum(positive(run.alone_ns) for run in pair)
    return alone / sum(positive(run.speculative_ns) for run in pair) - 1


def positive(value: float) -> float:
    """A number above zero, that a logarithm or a rate can be made of."""
    if value <= 0:
        raise ValueError(f"{value:g} is not above zero")
    return value
