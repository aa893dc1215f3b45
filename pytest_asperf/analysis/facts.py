"""Facts behind measurements and verdicts: run records, the machine's state, comparisons.

They are plain data, so that a report can contain all of them. Types that a field names are imported
at run time: `records.codec` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

#: Words of an engine, kept as they came.
Verbatim: TypeAlias = Mapping[str, object]
#: The limit of a card's clock that full load reaches.
POWER_CAP: Final = "power cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The run record: model, build and engine.

    Attributes:
        model: the name in a report, with the build where a gate compares two.
        spec: the model spec without the build.
        name: the model without its quantization.
        quant: the quantization; empty if the file is measured as it is.
        kv: the type of the KV cache; empty for the default.
        build: the user's name for the build; empty for asperf's own one.
        title: the model's own name in its file, and its size.
        path: the model's file.
        sha256: of the file.
        engine: the engine's name.
        library: that the engine is.
        version: of the library.
        libraries: release and hash of the engine's libraries, which distinguish its builds.
        threads: that computed.
        n_params: of the model.
        size_bytes: of the weights.
        layers_offloaded: layers on a GPU.
        backend: names of the buffers with the weights.
        requested: the requested engine settings.
        described: the engine's own description of itself, word for word.
        loaded: its answer to the load, word for word.
        context: its answer about the context, word for word.
    """

    model: str
    spec: str
    name: str
    quant: str = ""
    kv: str = ""
    build: str = ""
    title: str = ""
    path: str = ""
    sha256: str
    engine: str
    library: str
    version: str
    libraries: str
    threads: int | None = None
    n_params: int | None = None
    size_bytes: int | None = None
    layers_offloaded: int = 0
    backend: tuple[str, ...] = ()
    requested: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    described: Verbatim = field(default_factory=dict)
    loaded: Verbatim = field(default_factory=dict)
    context: Verbatim = field(default_factory=dict)

    @property
    def release(self) -> str:
        """The library and its version."""
        return f"{self.library} {self.version}".strip()

    @property
    def settings(self) -> dict[str, str]:
        """The requested engine settings, as texts."""
        return {key: str(value) for key, value in self.requested.items()}


@dataclass(frozen=True, slots=True)
class CardSeen:
    """The clock of a graphics card, MHz, and its limits."""

    clock_mhz: int | None
    limits: tuple[str, ...] = ()

    @property
    def cooling(self) -> tuple[str, ...]:
        """The limits that are there to cool; a power cap is none, as full load reaches it."""
        return tuple(limit for limit in self.limits if limit != POWER_CAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentSeen:
    """The machine at one moment; None is what the system does not report.

    Attributes:
        at_s: since the watch began.
        other_cores: that other processes kept busy since the moment before.
        stolen_cores: cores that other guests of the host used since then.
        clock_mhz: mean clock of the processor.
        thermal_level: macOS's thermal pressure, 0 to 4.
        throttle_events: how often cores were throttled since boot.
        swap_bytes: in use.
        on_battery: whether no charger is connected.
        cards: the graphics cards.
    """

    at_s: float
    other_cores: float | None = None
    stolen_cores: float | None = None
    clock_mhz: float | None = None
    thermal_level: int | None = None
    throttle_events: int | None = None
    swap_bytes: int | None = None
    on_battery: bool | None = None
    cards: tuple[CardSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """The machine during a measurement: cores that others kept busy on average, and samples."""

    other_cores: float | None = None
    samples: tuple[MomentSeen, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """One pair of runs.

    Attributes:
        baseline: costs of the baseline's runs, by run pair, in the comparison's `cost_unit`.
        candidate: costs of the candidate's runs.
        parts: that a long generation is timed in; each cost is that of one part.
        n_tokens: tokens of one run, or part, of each variant, if rates are compared; otherwise 1.
        candidate_first: whether the candidate ran first; None if each prompt had its own order.
        ratio: of the typical run, in the sense of the verdict's figure.
        total_ratio: of all runs together.
        evidence_for_fail: after this pair, as a multiple of the evidence for a FAIL.
        evidence_for_pass: after this pair, as a multiple of the evidence for a PASS.
    """

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]
    parts: int = 1
    n_tokens: tuple[int, int] = (1, 1)
    candidate_first: bool | None = None
    ratio: float
    total_ratio: float
    evidence_for_fail: float | None = None
    evidence_for_pass: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPairs:
    """Two variants that were measured in pairs.

    Attributes:
        variants: names of baseline and candidate.
        models: names of their models.
        ran: run record of each variant.
        timed: the workload.
        of_rates: whether the verdict's figure is a ratio of rates, and not of times.
        unit: of the medians.
        medians: of all runs of each variant.
        cost_unit: of the costs in `pairs`.
        pairs: in the order they ran.
        processes: of each variant, if they ran several pairs; None if each pair had new ones.
        elapsed_s: duration of the runs.
        watched: the machine during the comparison.
        drafted_and_accepted: in a gate of speculation, two counts for each prompt of each build.
    """

    kind: ClassVar[str] = "pairs"

    variants: tuple[str, str]
    models: tuple[str, str]
    ran: tuple[Ran, Ran]
    timed: str
    of_rates: bool = False
    unit: str
    medians: tuple[float, float]
    cost_unit: Literal["ns", "nJ"] = "ns"
    pairs: tuple[PairFacts, ...]
    processes: int | None = None
    elapsed_s: float | None = None
    watched: MachineSeen | None = None
    drafted_and_accepted: tuple[tuple[tuple[int, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The part of a corpus that PPL uses: its first chunks, of `n_ctx` tokens each."""

    name: str
    sha256: str
    n_chunks: int
    n_chunks_total: int
    n_ctx: int

    def __str__(self) -> str:
        return (
            f"{self.name}, sha256 {self.sha256[:12]}, chunks 1 to {self.n_chunks} of "
            f"{self.n_chunks_total}, of {self.n_ctx} tokens"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedChunks:
    """The chunks of a text that two builds scored.

    Attributes:
        ran: run record of each build.
        text: name of the text.
        text_sha256: of the text.
        n_chunks_total: chunks that the text has.
        delta_nll: the candidate's mean NLL of each chunk less the baseline's, nats, as drawn.
        elapsed_s: duration of the scoring.
    """

    kind: ClassVar[str] = "chunks"

    ran: tuple[Ran, Ran]
    text: str
    text_sha256: str
    n_chunks_total: int
    delta_nll: tuple[float, ...]
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVariants:
    """Two variants without samples, only a verdict; `ran` is the run record of each."""

    kind: ClassVar[str] = "variants"

    ran: tuple[Ran, Ran]


Compared: TypeAlias = ComparedPairs | ComparedChunks | ComparedVariants
