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
    """The run record: model, build and engine."""

    model: str  #: the name in a report, with the build where a gate compares two
    spec: str  #: the model spec without the build
    name: str  #: the model without its quantization
    quant: str = ""  #: the quantization; empty if the file is measured as it is
    kv: str = ""  #: the type of the KV cache; empty for the default
    build: str = ""  #: the user's name for the build; empty for asperf's own one
    title: str = ""  #: the model's own name in its file, and its size
    path: str = ""  #: the model's file
    sha256: str  #: of the file
    engine: str  #: the engine's name
    library: str  #: that the engine is
    version: str  #: of the library
    libraries: str  #: release and hash of the engine's libraries, which distinguish its builds
    threads: int | None = None  #: that computed
    n_params: int | None = None  #: of the model
    size_bytes: int | None = None  #: of the weights
    layers_offloaded: int = 0  #: layers on a GPU
    backend: tuple[str, ...] = ()  #: names of the buffers with the weights
    #: the requested engine settings
    requested: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    #: the engine's own description of itself, word for word
    described: Verbatim = field(default_factory=dict)
    loaded: Verbatim = field(default_factory=dict)  #: its answer to the load, word for word
    context: Verbatim = field(default_factory=dict)  #: its answer about the context, word for word

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
    """The machine at one moment; None is what the system does not report."""

    at_s: float  #: since the watch began
    other_cores: float | None = None  #: that other processes kept busy since the moment before
    stolen_cores: float | None = None  #: cores that other guests of the host used since then
    clock_mhz: float | None = None  #: mean clock of the processor
    #: macOS's thermal pressure, 1 to 4; `null` if nominal or unknown
    thermal_level: int | None = None
    throttle_events: int | None = None  #: how often cores were throttled since boot
    swap_bytes: int | None = None  #: in use
    on_battery: bool | None = None  #: whether no charger is connected
    cards: tuple[CardSeen, ...] = ()  #: the graphics cards


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """The machine during a measurement: cores that others kept busy on average, and samples."""

    other_cores: float | None = None
    samples: tuple[MomentSeen, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """One pair of runs."""

    #: costs of the baseline's runs, by run pair, in the comparison's `cost_unit`
    baseline: tuple[int, ...]
    candidate: tuple[int, ...]  #: costs of the candidate's runs
    parts: int = 1  #: that a long generation is timed in; each cost is that of one part
    #: tokens of one run, or part, of each variant, if rates are compared; otherwise 1
    n_tokens: tuple[int, int] = (1, 1)
    #: whether the candidate ran first; None if each prompt had its own order
    candidate_first: bool | None = None
    ratio: float  #: of the typical run, in the sense of the verdict's figure
    total_ratio: float  #: of all runs together
    #: after this pair, as a multiple of the evidence for a FAIL
    evidence_for_fail: float | None = None
    #: after this pair, as a multiple of the evidence for a PASS
    evidence_for_pass: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPairs:
    """Two variants that were measured in pairs."""

    kind: ClassVar[str] = "pairs"

    variants: tuple[str, str]  #: names of baseline and candidate
    models: tuple[str, str]  #: names of their models
    ran: tuple[Ran, Ran]  #: run record of each variant
    timed: str  #: the workload
    of_rates: bool = False  #: whether the verdict's figure is a ratio of rates, and not of times
    unit: str  #: of the medians
    medians: tuple[float, float]  #: of all runs of each variant
    cost_unit: Literal["ns", "nJ"] = "ns"  #: of the costs in `pairs`
    pairs: tuple[PairFacts, ...]  #: in the order they ran
    #: of each variant, if they ran several pairs; None if each pair had new ones
    processes: int | None = None
    elapsed_s: float | None = None  #: duration of the runs
    watched: MachineSeen | None = None  #: the machine during the comparison
    #: in a gate of speculation, two counts for each prompt of each build
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
    """The chunks of a text that two builds scored."""

    kind: ClassVar[str] = "chunks"

    ran: tuple[Ran, Ran]  #: run record of each build
    text: str  #: name of the text
    text_sha256: str  #: of the text
    n_chunks_total: int  #: chunks that the text has
    #: the candidate's mean NLL of each chunk less the baseline's, nats, as drawn
    delta_nll: tuple[float, ...]
    elapsed_s: float | None = None  #: duration of the scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVariants:
    """Two variants without samples, only a verdict; `ran` is the run record of each."""

    kind: ClassVar[str] = "variants"

    ran: tuple[Ran, Ran]


Compared: TypeAlias = ComparedPairs | ComparedChunks | ComparedVariants
