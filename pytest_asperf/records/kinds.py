"""The kinds of records: one for each kind of measurement, verdicts, and failures.

A record has facts. `report.lines` puts them into words, `records.codec` into plain data. Types that
a field names are imported at run time, for the decoder.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from pytest_asperf.analysis.facts import ComparedPairs, MachineSeen, Ran, ScoredText
from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import JudgedRecord, Verdict
from pytest_asperf.hardware.meters.meter import CounterWindow

#: Label and text of each fact of the run record.
Facts: TypeAlias = tuple[tuple[str, str], ...]
#: Prefix of a run record's label, for a fact of only one of two builds.
SIDES: Final = ("baseline ", "candidate ")
#: Labels of facts that differ between assertions, and are in the assertion's own words.
_OF_A_CLAIM: Final = ("model", "title", "type", "sha256", "memory", "settings", "requested")


def both_sides(ran: Facts) -> Iterator[tuple[str, str, str]]:
    """Label, baseline and candidate of each fact of the run record; common ones have no build."""
    facts = dict(ran)
    for label in dict.fromkeys(key.removeprefix(SIDES[0]).removeprefix(SIDES[1]) for key in facts):
        shared = facts.get(label, "not known")
        base, candidate = (facts.get(f"{side}{label}", shared) for side in SIDES)
        yield label, base, candidate


def facts_of_builds(every: Iterable[Facts]) -> list[tuple[str, str, str]]:
    """Label, baseline and candidate of facts that all assertions about two builds share, each once.

    Settings, which differ between assertions, are among them if they differ between the builds.
    """
    rows = dict.fromkeys(row for ran in every for row in both_sides(ran))
    return [
        (label, base, candidate)
        for label, base, candidate in rows
        if label not in _OF_A_CLAIM or (label == "settings" and base != candidate)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRecord:
    """The common part of measurements that nothing judged.

    Attributes:
        ran: the run record.
        facts: the run record, in words.
        note: remarks on how it was measured, one a line.
        guards: the guards' findings.
        watched: the machine during the measurement.
    """

    outcome: ClassVar[str] = ""

    ran: Ran
    facts: Facts = ()
    note: str = ""
    guards: tuple[GuardFinding, ...] = ()
    watched: MachineSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request to a server.

    Attributes:
        event_ns: times of the chunks with output, ns since the request was sent.
        n_prompt: prompt tokens, as the server counts them.
        n_cached: those of them that were in its cache.
        n_output: tokens of the reply, as the server counts them.
    """

    event_ns: tuple[int, ...]
    n_prompt: int | None = None
    n_cached: int | None = None
    n_output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One timed run.

    Attributes:
        n_tokens: tokens that it computed.
        elapsed_ns: its time.
        load: number of the load of the model that it belongs to, from 0.
        requests: of a server, the requests that the run consists of.
    """

    n_tokens: int
    elapsed_ns: int
    load: int = 0
    requests: tuple[RequestFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRecord(MeasurementRecord):
    """Runs of one workload on one model.

    Attributes:
        workload: the timed work.
        estimate: the median rate or time.
        prefill_share: of a whole request, the part until its first token.
        effective_rate: of a whole request, tok/s.
        user_rate: of several users, the rate that each gets.
        loads: how often the model was loaded.
        warm_ups: the runs that do not count.
        runs: the runs that count.
        bytes_per_token: that one step of TG reads.
        peak_rss_bytes: the worker's peak resident memory.
    """

    kind: ClassVar[str] = "throughput"

    workload: str
    estimate: Estimate
    prefill_share: Estimate | None = None
    effective_rate: Estimate | None = None
    user_rate: Estimate | None = None
    loads: int = 1
    warm_ups: tuple[RunFacts, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    bytes_per_token: int | None = None
    peak_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFacts:
    """The sums of one scored chunk, nats.

    Attributes:
        n_tokens: scored tokens.
        nll_sum: negative log-likelihood.
        baseline_nll_sum: the baseline's.
        kld_sum: KLD from the baseline.
    """

    n_tokens: int
    nll_sum: float
    baseline_nll_sum: float
    kld_sum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantRecord(MeasurementRecord):
    """A quantization that was scored against its baseline.

    Attributes:
        baseline: run record of the baseline.
        baseline_name: the test's name for the baseline.
        text: the scored text.
        ppl: perplexity.
        ppl_baseline: perplexity of the baseline.
        delta_ppl: relative change of PPL.
        kld_mean: mean KLD, nats.
        same_top: share of positions with the same likeliest token.
        size_bytes: size of the file.
        peak_rss_bytes: the worker's peak resident memory.
        chunks: sums of each chunk.
    """

    kind: ClassVar[str] = "quant"

    baseline: Ran
    baseline_name: str = ""
    text: ScoredText | None = None
    ppl: float
    ppl_baseline: float
    delta_ppl: Estimate
    kld_mean: Estimate | None = None
    same_top: Estimate | None = None
    size_bytes: int
    peak_rss_bytes: int | None = None
    chunks: tuple[ChunkFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RailFacts:
    """The energy of one rail.

    Attributes:
        joules_per_token: while the model worked.
        net_joules_per_token: without the idle machine's energy.
        watts: mean power while the model worked.
        idle_watts: mean power of the idle machine.
    """

    joules_per_token: Estimate
    net_joules_per_token: Estimate
    watts: Estimate
    idle_watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """One kind of work while counters were sampled.

    Attributes:
        wall_s: duration of the phase.
        busy_s: time of it that the engine computed.
        n_tokens: tokens that it computed; 0 for an idle machine.
        windows: energy between updates of each counter.
    """

    wall_s: float
    busy_s: float
    n_tokens: int
    windows: tuple[CounterWindow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRecord(MeasurementRecord):
    """The energy of one workload on one model.

    Attributes:
        workload: the metered work.
        joules_per_token: of all measured rails.
        net_joules_per_token: without the idle machine's energy.
        rails: by name.
        unmeasured: the reason by rail.
        idle: the idle machine, with the model loaded.
        phases: in the order they ran.
    """

    kind: ClassVar[str] = "energy"

    workload: str
    joules_per_token: Estimate
    net_joules_per_token: Estimate | None = None
    rails: Mapping[str, RailFacts] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    idle: PhaseFacts | None = None
    phases: tuple[PhaseFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord(MeasurementRecord):
    """The memory of a model with `n_ctx` positions filled, by the engine's own count.

    Attributes:
        n_ctx: positions of the context.
        weights_bytes: the weights.
        kv_bytes: the KV cache.
        compute_bytes: the compute buffers.
        peak_rss_bytes: the worker's peak resident memory, all of them included.
    """

    kind: ClassVar[str] = "memory"

    n_ctx: int
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    peak_rss_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it, without the worker's own memory."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """One prompt, by its index, without and with the draft.

    A round is drafted, accepted and emitted tokens, then ns of drafting, verifying and rollback.
    """

    prompt: int
    speculative_first: bool = False
    alone_ns: int
    speculative_ns: int
    n_tokens: int = 0
    rounds: tuple[tuple[int, int, int, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceFacts:
    """The first difference of two outputs.

    Attributes:
        prompt: its index.
        position: of the token after the prompt.
        tokens: of the target alone and with the draft.
        margin: distance from a tie, in logits.
    """

    prompt: int
    position: int
    tokens: tuple[int, int]
    margin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRecord(MeasurementRecord):
    """A draft and its target, against the target alone.

    Costs are in steps of the target alone.

    Attributes:
        label: the pairing.
        draft: model spec of the draft; None for lookup in the text.
        target: model spec of the target.
        k: tokens drafted in a round.
        temperature: of the sampler; 0 is greedy.
        n_tokens: generated after each prompt.
        categories: of each prompt.
        gain: rate with the draft over that of the target alone, less 1.
        alone_rate: of the target alone, tok/s.
        speculative_rate: with the draft, tok/s.
        predicted_gain: from acceptance and the costs of steps.
        ratio: rate of the draft over that of the target.
        break_even_ratio: ratio from which the pair gains; None if there is none.
        best_k: k with the highest predicted gain.
        best_k_gain: that gain.
        drafted: tokens of all rounds.
        accepted: those of them that the target accepted.
        acceptance: accepted of drafted tokens.
        acceptance_by_category: the acceptance by category of prompt.
        acceptance_by_position: the acceptance by position in a round.
        mean_length: tokens that a round emits.
        mean_length_by_category: the same by category of prompt.
        n_rounds: of all runs.
        drafting: mean cost of the drafts of a round.
        verifying: mean cost of verifying a round.
        draft_step: cost of a step of the draft, c.
        verify: cost of verifying a batch by its size, C.
        time_split: shares of the time.
        rollback: by context, how rejected tokens are removed.
        contexts: by context, the engine's own words.
        draft_ran: run record of the draft.
        divergences: where outputs part.
        seed: of the random order.
        reloads: whether each pair began with a load.
        interrupted: whether it was stopped.
        comparison: the whole suite, in pairs.
        prompts: of each pair, each prompt.
    """

    kind: ClassVar[str] = "speculation"

    label: str
    draft: str | None = None
    target: str = ""
    k: int
    temperature: float = 0.0
    n_tokens: int = 0
    categories: tuple[str, ...] = ()
    gain: Estimate
    alone_rate: float | None = None
    speculative_rate: float | None = None
    predicted_gain: Estimate
    ratio: Estimate
    break_even_ratio: float | None = None
    best_k: int
    best_k_gain: float
    drafted: int = 0
    accepted: int = 0
    acceptance: float
    acceptance_by_category: Mapping[str, float] = field(default_factory=dict)
    acceptance_by_position: tuple[float, ...] = ()
    mean_length: float
    mean_length_by_category: Mapping[str, float] = field(default_factory=dict)
    n_rounds: int = 0
    drafting: float
    verifying: float
    draft_step: Estimate | None = None
    verify: Mapping[str, Estimate] = field(default_factory=dict)
    time_split: Mapping[str, float] = field(default_factory=dict)
    rollback: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    draft_ran: Ran | None = None
    divergences: tuple[DivergenceFacts, ...] = ()
    seed: int | None = None
    reloads: bool = False
    interrupted: bool = False
    comparison: ComparedPairs | None = None
    prompts: tuple[tuple[PromptFacts, ...], ...] = ()

    @property
    def is_invalid(self) -> bool:
        """True if a guard found the measurement broken."""
        return any(finding.consequence is Consequence.INVALID for finding in self.guards)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRecord(JudgedRecord):
    """A measurement that broke, or that could not run.

    Attributes:
        outcome: INVALID, or NOT RUN.
        found: the event.
        watched: the machine during the measurement.
    """

    kind: ClassVar[str] = "broken"

    outcome: Literal["INVALID", "NOT RUN"] = "INVALID"
    found: str
    watched: MachineSeen | None = None


AnyRecord: TypeAlias = (
    ThroughputRecord
    | QuantRecord
    | EnergyRecord
    | MemoryRecord
    | SpeculationRecord
    | Verdict
    | BrokenRecord
)


def ran_of(record: AnyRecord) -> tuple[Ran, ...]:
    """The run record; of two variants both."""
    if isinstance(record, Verdict):
        return record.compared.ran if record.compared else ()
    return () if isinstance(record, BrokenRecord) else (record.ran,)


@dataclass(frozen=True, slots=True)
class Noted:
    """A record with the test that noted it."""

    test: str  #: the test's id; of a gate, the check
    record: AnyRecord  #: the record
    machine: str = ""  #: name of the machine, if a report has several
    apart: str = ""  #: its difference from other records of its name
