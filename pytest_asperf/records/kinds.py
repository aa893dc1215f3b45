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
#: By label, the meaning of a fact that only the other build has.
_ABSENT: Final[Mapping[str, str]] = {
    "made": "not by asperf, which uses the build as it is",
    "priority": "nice 0",
    "requested": "nothing",
}
#: Labels of facts that differ between assertions, and are in the assertion's own words.
_OF_A_CLAIM: Final = ("model", "title", "type", "sha256", "memory", "settings", "requested")


def both_sides(ran: Facts) -> Iterator[tuple[str, str, str]]:
    """Label, baseline and candidate of each fact of the run record; common ones have no build."""
    facts = dict(ran)
    for label in dict.fromkeys(key.removeprefix(SIDES[0]).removeprefix(SIDES[1]) for key in facts):
        shared = facts.get(label, _ABSENT.get(label, "not reported"))
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
    """The common part of measurements that nothing judged."""

    outcome: ClassVar[str] = ""

    ran: Ran  #: the run record
    facts: Facts = ()  #: the run record, in words
    note: str = ""  #: remarks on how it was measured, one a line
    guards: tuple[GuardFinding, ...] = ()  #: the guards' findings
    watched: MachineSeen | None = None  #: the machine during the measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request to a server."""

    event_ns: tuple[int, ...]  #: times of the chunks with output, ns since the request was sent
    n_prompt: int | None = None  #: prompt tokens, as the server counts them
    n_cached: int | None = None  #: those of them that were in its cache
    n_output: int | None = None  #: tokens of the reply, as the server counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One timed run."""

    n_tokens: int  #: tokens that it computed
    elapsed_ns: int  #: its time
    load: int = 0  #: number of the load of the model that it belongs to, from 0
    requests: tuple[RequestFacts, ...] = ()  #: of a server, the requests that the run consists of


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRecord(MeasurementRecord):
    """Runs of one workload on one model."""

    kind: ClassVar[str] = "throughput"

    workload: str  #: the timed work
    estimate: Estimate  #: the median rate or time
    prefill_share: Estimate | None = None  #: of a whole request, the part until its first token
    effective_rate: Estimate | None = None  #: of a whole request, tok/s
    user_rate: Estimate | None = None  #: of several users, the rate that each gets
    loads: int = 1  #: how often the model was loaded
    warm_ups: tuple[RunFacts, ...] = ()  #: the runs that do not count
    runs: tuple[RunFacts, ...] = ()  #: the runs that count
    bytes_per_token: int | None = None  #: that one step of TG reads
    peak_rss_bytes: int | None = None  #: the worker's peak resident memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFacts:
    """The sums of one scored chunk, nats."""

    n_tokens: int  #: scored tokens
    nll_sum: float  #: negative log-likelihood
    baseline_nll_sum: float  #: the baseline's
    kld_sum: float | None = None  #: KLD from the baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantRecord(MeasurementRecord):
    """A quantization that was scored against its baseline."""

    kind: ClassVar[str] = "quant"

    baseline: Ran  #: run record of the baseline
    baseline_name: str = ""  #: the test's name for the baseline
    text: ScoredText | None = None  #: the scored text
    ppl: float  #: perplexity
    ppl_baseline: float  #: perplexity of the baseline
    delta_ppl: Estimate  #: relative change of PPL
    kld_mean: Estimate | None = None  #: mean KLD, nats
    same_top: Estimate | None = None  #: share of positions with the same likeliest token
    size_bytes: int  #: size of the file
    peak_rss_bytes: int | None = None  #: the worker's peak resident memory
    chunks: tuple[ChunkFacts, ...] = ()  #: sums of each chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class RailFacts:
    """The energy of one rail."""

    joules_per_token: Estimate  #: while the model worked
    net_joules_per_token: Estimate  #: without the idle machine's energy
    watts: Estimate  #: mean power while the model worked
    idle_watts: float  #: mean power of the idle machine


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """One kind of work while counters were sampled."""

    wall_s: float  #: duration of the phase
    busy_s: float  #: time of it that the engine computed
    n_tokens: int  #: tokens that it computed; 0 for an idle machine
    windows: tuple[CounterWindow, ...] = ()  #: energy between updates of each counter


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRecord(MeasurementRecord):
    """The energy of one workload on one model."""

    kind: ClassVar[str] = "energy"

    workload: str  #: the metered work
    joules_per_token: Estimate  #: of all measured rails
    net_joules_per_token: Estimate | None = None  #: without the idle machine's energy
    rails: Mapping[str, RailFacts] = field(default_factory=dict)  #: by name
    unmeasured: Mapping[str, str] = field(default_factory=dict)  #: the reason by rail
    idle: PhaseFacts | None = None  #: the idle machine, with the model loaded
    phases: tuple[PhaseFacts, ...] = ()  #: in the order they ran


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord(MeasurementRecord):
    """The memory of a model with `n_ctx` positions filled, by the engine's own count."""

    kind: ClassVar[str] = "memory"

    n_ctx: int  #: positions of the context
    weights_bytes: int  #: the weights
    kv_bytes: int  #: the KV cache
    compute_bytes: int  #: the compute buffers
    peak_rss_bytes: int  #: the worker's peak resident memory, all of them included

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
    """The first difference of two outputs."""

    prompt: int  #: its index
    position: int  #: of the token after the prompt
    tokens: tuple[int, int]  #: of the target alone and with the draft
    margin: float  #: distance from a tie, in logits


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRecord(MeasurementRecord):
    """A draft and its target, against the target alone.

    Costs are in steps of the target alone.
    """

    kind: ClassVar[str] = "speculation"

    label: str  #: the pairing
    draft: str | None = None  #: model spec of the draft; None for lookup in the text
    target: str = ""  #: model spec of the target
    k: int  #: tokens drafted in a round
    temperature: float = 0.0  #: of the sampler; 0 is greedy
    n_tokens: int = 0  #: generated after each prompt
    categories: tuple[str, ...] = ()  #: of each prompt
    gain: Estimate  #: rate with the draft over that of the target alone, less 1
    alone_rate: float | None = None  #: of the target alone, tok/s
    speculative_rate: float | None = None  #: with the draft, tok/s
    predicted_gain: Estimate  #: from acceptance and the costs of steps
    ratio: Estimate  #: rate of the draft over that of the target
    break_even_ratio: float | None = None  #: ratio from which the pair gains; None if there is none
    best_k: int  #: k with the highest predicted gain
    best_k_gain: float  #: that gain
    drafted: int = 0  #: tokens of all rounds
    accepted: int = 0  #: those of them that the target accepted
    acceptance: float  #: accepted of drafted tokens
    #: the acceptance by category of prompt
    acceptance_by_category: Mapping[str, float] = field(default_factory=dict)
    acceptance_by_position: tuple[float, ...] = ()  #: the acceptance by position in a round
    mean_length: float  #: tokens that a round emits
    #: the same by category of prompt
    mean_length_by_category: Mapping[str, float] = field(default_factory=dict)
    n_rounds: int = 0  #: of all runs
    drafting: float  #: mean cost of the drafts of a round
    verifying: float  #: mean cost of verifying a round
    draft_step: Estimate | None = None  #: cost of a step of the draft, c
    #: cost of verifying a batch by its size, C
    verify: Mapping[str, Estimate] = field(default_factory=dict)
    time_split: Mapping[str, float] = field(default_factory=dict)  #: shares of the time
    #: by context, how rejected tokens are removed
    rollback: Mapping[str, str] = field(default_factory=dict)
    #: by context, the engine's own words
    contexts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    draft_ran: Ran | None = None  #: run record of the draft
    divergences: tuple[DivergenceFacts, ...] = ()  #: where outputs part
    seed: int | None = None  #: of the random order
    reloads: bool = False  #: whether each pair began with a load
    interrupted: bool = False  #: whether it was stopped
    comparison: ComparedPairs | None = None  #: the whole suite, in pairs
    prompts: tuple[tuple[PromptFacts, ...], ...] = ()  #: of each pair, each prompt

    @property
    def is_invalid(self) -> bool:
        """True if a guard found the measurement broken."""
        return any(finding.consequence is Consequence.INVALID for finding in self.guards)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRecord(JudgedRecord):
    """A measurement that broke, or that could not run."""

    kind: ClassVar[str] = "broken"

    outcome: Literal["INVALID", "NOT RUN"] = "INVALID"  #: INVALID, or NOT RUN
    found: str  #: the event
    watched: MachineSeen | None = None  #: the machine during the measurement


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
