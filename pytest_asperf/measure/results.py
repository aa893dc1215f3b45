"""The results of measurements: raw counts with their run record, and the estimates from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Final

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.facts import Ran, ScoredText
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.serving_metrics import e2e_ns, itl_ns, ttft_ns, user_rate
from pytest_asperf.analysis.stats.estimate import SHARE, Estimate, counted_text, memory_text
from pytest_asperf.analysis.stats.intervals import median_interval
from pytest_asperf.analysis.verdict import OVERSUBSCRIBED
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import (
    ContextFacts,
    EngineFacts,
    EngineMemory,
    LoadedFacts,
    MetalFacts,
    RawRun,
    n_usable_cores,
)
from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.watch import NOT_WATCHED, Watched
from pytest_asperf.measure.lone_server import ExaminedServer
from pytest_asperf.measure.timed_work import NOT_EXAMINED, ExaminedRun

_DEVICES_SHOWN: Final = 4


@dataclass(frozen=True)
class Provenance:
    """Run record: the actual run."""

    model: str  #: the model's spec
    path: Path  #: its file
    sha256: str  #: the file's hash
    engine: EngineFacts  #: the engine's own facts
    loaded: LoadedFacts  #: the model's resolved settings
    context: ContextFacts | None  #: the resolved context, None before there is one
    requested: EngineSettings  #: the requested engine settings
    #: the types of a mixed file, and how a build that was made here came about, as label and text
    made: tuple[tuple[str, str], ...] = ()
    #: the model's own name in its file, and its size; empty if the file has neither
    title: str = ""
    ref: ModelRef | None = None  #: the model as requested
    build_name: str = ""  #: the user's name for the build; empty for asperf's own one

    def facts(self) -> Ran:
        """The run record, as plain facts for a report."""
        ref, loaded, engine = self.ref, self.loaded, self.engine
        return Ran(
            model=self.model,
            spec=ref.title if ref else self.model,
            name=ref.spec.name if ref else self.model,
            quant=ref.level or "" if ref else "",
            kv=ref.spec.settings.kv_name if ref else "",
            build=self.build_name,
            title=self.title,
            path=str(self.path),
            sha256=self.sha256,
            engine=engine.engine,
            library=engine.library,
            version=engine.version,
            libraries=engine.build,
            threads=loaded.threads,
            n_params=loaded.n_params,
            size_bytes=loaded.size_bytes,
            layers_offloaded=loaded.layers_offloaded,
            backend=tuple(sorted(name.removesuffix("_Mapped") for name in loaded.weights_mib)),
            requested=self.requested.as_dict(),
            described=engine.verbatim,
            loaded=loaded.verbatim,
            context=self.context.verbatim if self.context else {},
        )

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each fact, for a failure message."""
        memory, logits = self.memory, self.loaded.logits_seen
        served_by = "programs" if self.engine.engine == "command" else "server"
        return (
            ("model", self.model),
            *((("title", self.title),) if self.title else ()),
            # llama.cpp has the sizes of some published models only, and writes ?B for others.
            ("type", self.loaded.description.replace(" ?B", "")),
            ("sha256", self.sha256[:12] or "its file is not known"),
            ("engine", self.engine.release),
            ("build", self.engine.libraries),
            *self.made,
            ("device", self._devices()),
            *((("gpu", metal.text()),) if (metal := self.metal) else ()),
            *((("remote", self.loaded.remote.text()),) if self.loaded.remote else ()),
            *((("group", self.loaded.group),) if self.loaded.group else ()),
            *((("priority", self.engine.priority),) if self.engine.priority else ()),
            ("settings", self._settings()),
            *((("requested", requested),) if (requested := self._requested()) else ()),
            *(((OVERSUBSCRIBED, crowd),) if (crowd := self._oversubscribed()) else ()),
            *((("memory", f"{memory}, by the engine's own count"),) if memory else ()),
            *(((served_by, self._server),) if self.loaded.served else ()),
            *((("proof", proof),) if (proof := self.context and self.context.proof) else ()),
            *((("client", client),) if (client := self.context and self.context.client) else ()),
            *((("logits", logits),) if logits else ()),
        )

    @property
    def metal(self) -> MetalFacts | None:
        """The Mac's GPU that layers lie on, as the engine's log describes it."""
        context = self.context.metal if self.context else None
        return (context or self.engine.metal) if self.loaded.layers_offloaded else None

    @property
    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """The findings on the device that computed."""
        finding = self.metal.guard_finding if self.metal else None
        return (finding,) if finding else ()

    @property
    def memory(self) -> EngineMemory | None:
        """The memory that the engine reports to have allocated, None if it does not report it."""
        return self.context.memory if self.context else None

    @property
    def _server(self) -> str:
        """The server in words, with its options and its drafted tokens in the last run."""
        args = self.requested.server_args
        options = f"; options {args}" if args else ""
        drafted = f"; {self.context.drafted}" if self.context and self.context.drafted else ""
        return f"{self.loaded.served}{options}{drafted}"

    def _settings(self) -> str:
        loaded, context = self.loaded, self.context
        kv, flash_attn, n_ctx = "?/?", "unknown", None
        if context:
            kv = f"{context.type_k}/{context.type_v}"
            flash_attn, n_ctx = context.flash_attn, context.n_ctx
        return ", ".join(
            (
                counted_text(loaded.threads, "threads") if loaded.threads else "? threads",
                f"KV {kv}",
                f"flash attention {flash_attn}",
                f"context {'?' if n_ctx is None else n_ctx}",
                *((f"{loaded.tokens} tokens",) if loaded.tokens else ()),
                *((f"slow_by={loaded.slow_by:g}",) if loaded.slow_by else ()),
            )
        )

    def _requested(self) -> str:
        asked = self.requested.as_texts()
        return ", ".join(f"{key}={text}" for key, text in asked.items())

    def _oversubscribed(self) -> str:
        """How many threads share how few cores of this machine; empty if each has one."""
        threads = (self.context.threads if self.context else None) or self.loaded.threads
        cores = n_usable_cores()
        if threads <= cores:
            return ""
        return f"{threads} threads on {counted_text(cores, 'cores')}: they wait for one another"

    def _devices(self) -> str:
        mib = sorted(self.loaded.weights_mib.items())
        buffers = [f"{name} {memory_text(size * 2**20)}" for name, size in mib]
        layers = f"{self.loaded.layers_offloaded}/{self.loaded.n_layers + 1} layers on a GPU"
        if not self.loaded.n_layers:
            layers = "layers on a GPU unknown"
        computed = f"; computed in {self.loaded.dtype}" if self.loaded.dtype else ""
        return f"{', '.join(buffers[:_DEVICES_SHOWN]) or 'unknown'}; {layers}{computed}"


@dataclass(frozen=True, slots=True)
class TimedLoad:
    """The runs timed on one load of a model, in their order.

    The warm-up before them is not counted; there is none if the engine warms itself up.
    """

    warm_up: RawRun | None
    runs: tuple[RawRun, ...]

    @property
    def every(self) -> tuple[RawRun, ...]:
        """All runs, the warm-up first."""
        return self.runs if self.warm_up is None else (self.warm_up, *self.runs)


@dataclass(frozen=True)
class ThroughputResult:
    """Repetitions of one workload on one model."""

    workload: Workload  #: the timed work
    #: the model's loads, of one counted run each, or one load of all runs
    loads: tuple[TimedLoad, ...]
    bytes_per_token: int | None  #: bytes that one step of TG reads at this depth, None if unknown
    ran: Provenance  #: the run record; of the last load if there are several
    watched: Watched = NOT_WATCHED  #: the machine during the runs
    #: the state after one of the runs; None if the engine does not show it
    examined: ExaminedRun | ExaminedServer | None = None

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of the run record, and of the state after one of the runs."""
        if self.workload.is_load:
            return self.ran.rows()
        return (*self.ran.rows(), ("timed work", str(self.examined or NOT_EXAMINED)))

    @cached_property
    def runs(self) -> tuple[RawRun, ...]:
        """The counted runs, in the order they ran."""
        return tuple(run for load in self.loads for run in load.runs)

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Rate of each counted run, tok/s."""
        return tuple(metrics.tokens_per_second(r.n_tokens, r.elapsed_ns) for r in self.runs)

    @cached_property
    def rate(self) -> Estimate:
        """Median rate with its interval, tok/s; it covers the loads where each has a run."""
        return self.over_runs(self.rates, "tok/s")

    @cached_property
    def time(self) -> Estimate:
        """Median duration of a run, ms."""
        return self.over_runs(self.times_ms, "ms")

    @cached_property
    def times_ms(self) -> tuple[float, ...]:
        """Time of each counted run; of `itl…` that of a token."""
        per = self.workload.n_tokens if self.workload.kind == "itl" else 1
        return tuple(run.elapsed_ns / 1e6 / per for run in self.runs)

    @property
    def judged(self) -> tuple[float, ...]:
        """The figure that judges its workload, of each counted run: its rate, or its time."""
        return self.rates if self.workload.is_rate else self.times_ms

    @cached_property
    def user_rate(self) -> Estimate:
        """The rate of one user of a server: the mean of a run's users, tok/s."""
        rates = [fmean(map(user_rate, run.requests)) for run in self.runs]
        return self.over_runs(rates, "tok/s")

    @property
    def samples_ms(self) -> list[list[float]]:
        """Times in ms per run: one per token, per request, or per run."""
        return [[ns / 1e6 for ns in samples_ns(run, self.workload)] for run in self.runs]

    @property
    def prefill_share(self) -> Estimate:
        """The share of a request's time before its first output token."""
        return self.over_runs([run.step_ns[0] / run.elapsed_ns for run in self.runs], SHARE)

    @property
    def counted(self) -> str:
        """The name of the runs."""
        return "loads" if len(self.loads) > 1 else "runs of one load"

    @property
    def covers(self) -> str:
        """The variance that an interval over the runs covers."""
        if len(self.loads) > 1:
            return "a fresh load for each run, so it covers loads and runs"
        return "it covers the runs of this load, not how loads differ"

    def over_runs(self, values: Sequence[float], unit: str) -> Estimate:
        """The median of a quantity that each counted run has, with its interval."""
        estimate = median_interval(values, unit=unit, counted=self.counted)
        return replace(estimate, method=f"{estimate.method}; {self.covers}")

    @property
    def metric(self) -> metrics.Metric:
        """The subject of the rate."""
        return metrics.TG if self.workload.generates else metrics.PP


def samples_ns(run: RawRun, workload: Workload) -> list[int]:
    """The times for percentiles: per token, per request, or per run."""
    requests = run.requests
    if workload.generates:
        return [*chain.from_iterable(map(itl_ns, requests))] if requests else [*run.step_ns]
    of = e2e_ns if workload.kind == "request" else ttft_ns
    return [of(request) for request in requests] or [run.elapsed_ns]


@dataclass(frozen=True)
class LevelResult:
    """One quantization of a sweep, scored on the same chunks as its baseline."""

    chunks: tuple[ChunkScore, ...]  #: raw scores by chunk
    #: the baseline's scores of the same chunks, in the same pass
    baseline_chunks: tuple[ChunkScore, ...]
    size_bytes: int  #: size of the file
    text: ScoredText  #: the scored text
    ran: Provenance  #: the run record
    baseline_ran: Provenance  #: run record of the baseline
    same: str  #: how the files show that this is the baseline over again; empty if they do not
    why_lossless: str  #: why it may score exactly as the baseline does; empty if it may not
    #: the worker's peak resident memory, with all quantizations loaded together
    peak_rss_bytes: int
    work: Mapping[str, str]  #: only quantizations scored on equal work can be compared

    @cached_property
    def comparison(self) -> metrics.Comparison:
        """ΔPPL, KLD and same-top-token share against the baseline."""
        return metrics.compare_scores(self.baseline_chunks, self.chunks)

    @property
    def nll(self) -> list[tuple[float, ...]]:
        """NLL of each scored token in nats, by chunk."""
        return [chunk.nll for chunk in self.chunks]

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return the run record and the text, as label and text."""
        return (*self.ran.rows(), ("text", str(self.text)))


@dataclass(frozen=True)
class LadderResult:
    """The quantizations of a sweep against one baseline."""

    rungs: Mapping[ModelRef, LevelResult]  #: the measured quantizations
    failures: Mapping[ModelRef, AsperfError]  #: quantizations that could not be scored
    note: str = ""  #: how it was measured, if that was not all models in one pass
