"""The resolved facts of an engine, a loaded model and a context, parsed from worker answers.

Text is escaped and bounded here. A field that is missing or has another type is a ValueError that
names it. `verbatim` is the answer itself, for the JSON report's run record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Final, Self, TypeVar, get_args, get_origin, get_type_hints

from pytest_asperf.analysis.guards import GuardFinding, gpu_limits
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.errors import printable, shown

Value = TypeVar("Value")

_KINDS: Final[dict[type, str]] = {
    str: "a text",
    int: "a whole number from 0",
    float: "a number from 0",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory that an engine reports to have allocated for one model, in bytes."""

    weights: int  #: the weights, as they lie in memory
    kv: int  #: the KV cache, and the state of recurrent layers
    compute: int  #: the compute type of steps, at its largest

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.compute

    def __str__(self) -> str:
        parts = (("weights", self.weights), ("KV", self.kv), ("compute", self.compute))
        return ", ".join(f"{name} {memory_text(nbytes)}" for name, nbytes in parts)


@dataclass(frozen=True, slots=True)
class Device:
    """A compute device that an engine registered; `type` is CPU, GPU and the like."""

    name: str = "unknown"
    description: str = "unknown"
    type: str = "unknown"
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetalFacts:
    """A Mac's GPU by llama.cpp's log; None if it is not in the log."""

    gpu: str | None = None  #: the name that Metal has for it
    families: tuple[str, ...] = ()  #: Metal's names of its families: Apple9, Metal4
    #: whether matrices can be multiplied: on every Apple silicon, and neither on a virtual
    #: machine's device nor on an Intel Mac's
    simdgroup_matrix: bool | None = None
    tensor: bool | None = None  #: whether the tensor API of Metal 4 is in use
    working_set_bytes: int | None = None  #: memory that the system recommends to give it at most
    over_working_set: bool = False  #: whether more was allocated

    @classmethod
    def parse(cls, answer: object) -> Self | None:
        """Read a worker's findings in a log; None if Metal was not used."""
        return parsed(cls, answer, "metal") if answer else None

    @property
    def guard_finding(self) -> GuardFinding | None:
        """The finding of the guard `gpu-limits`."""
        return gpu_limits(
            self.gpu or "the GPU",
            has_matrix=self.simdgroup_matrix,
            working_set_bytes=self.working_set_bytes,
            is_over=self.over_working_set,
        )

    def text(self) -> str:
        """It in words."""
        parts = [f"family {'/'.join(self.families)}"] if self.families else []
        if self.simdgroup_matrix is False:
            parts.append("no simdgroup matrix multiplication")
        if self.tensor is not None:
            parts.append(f"tensor API {'on' if self.tensor else 'off'}")
        if self.working_set_bytes is not None:
            over = ", exceeded" if self.over_working_set else ""
            parts.append(f"working set {memory_text(self.working_set_bytes)}{over}")
        return ", ".join([self.gpu or "unknown GPU", *parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The facts that an engine reports about itself; None if it does not report one."""

    engine: str
    library: str
    version: str
    ggml_version: str | None = None
    ggml_commit: str | None = None
    mlx_version: str | None = None
    library_path: str | None = None
    library_sha256: str | None = None
    devices: tuple[Device, ...] = ()
    default_threads: int | None = None
    priority: str | None = None  #: of its process, if that is not the usual one
    #: requests that the engine does not support, with the reason: an operation, a setting, or
    #: `setting=value`
    cannot: Mapping[str, str] = field(default_factory=dict)
    #: a Mac's GPU, if the engine reports it before it loads a model
    metal: MetalFacts | None = None
    verbatim: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> Self:
        """Read the answer to `describe`."""
        present(answer, "default_threads")
        devices = required(answer, "devices", tuple[Device, ...])
        return parsed(cls, answer, "describe", devices=devices, verbatim=answer)

    @property
    def has_gpu(self) -> bool:
        """True if it registered a GPU, or no device at all: a server does not show its own."""
        return not self.devices or any("GPU" in device.type for device in self.devices)

    @property
    def release(self) -> str:
        """The library's name and version, and those of the library below it."""
        if self.engine == "command":
            return self.library
        if self.engine == "openai":
            return f"{self.library}, version {self.version}"
        if self.mlx_version is not None:
            below = f"mlx {self.mlx_version}"
        else:
            below = f"ggml commit {self.ggml_commit or 'unknown'}"
        return f"{self.library} {self.version}, {below}"

    @property
    def libraries(self) -> str:
        """A short hash of the libraries."""
        return f"libraries sha256 {(self.library_sha256 or 'unknown')[:12]}"

    @property
    def build(self) -> str:
        """The facts that distinguish this build of the engine from others."""
        return f"{self.release}, {self.libraries}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFacts:
    """The RPC server that computes for a model."""

    endpoint: str
    protocol: str
    round_trip_us: float  #: of a small request, before the load
    #: of a tensor sent and read back over TCP, None if it cannot be measured
    bandwidth_mbs: float | None = None
    offers_rdma: bool = False  #: whether the server would leave TCP for RDMA
    after: RemoteFacts | None = None  #: the same when the model was freed

    @property
    def link(self) -> str:
        """Round trip and bandwidth in words."""
        if self.bandwidth_mbs is None:
            return f"{self.round_trip_us:.0f} µs"
        return f"{self.round_trip_us:.0f} µs and {self.bandwidth_mbs:.0f} MB/s"

    def text(self) -> str:
        """It in words."""
        over = "TCP, or RDMA, which it offers" if self.offers_rdma else "TCP"
        after = f", after it {self.after.link}" if self.after else ""
        return (
            f"{self.endpoint} by RPC {self.protocol} over {over}; round trip and bandwidth before "
            f"the load {self.link}{after}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFacts:
    """The resolved facts of a load; None if the engine does not report one."""

    description: str
    n_params: int
    size_bytes: int
    n_vocab: int
    n_layers: int
    n_ctx_train: int
    add_bos: bool | None
    layers_offloaded: int  #: layers on a GPU, the output head counted as one
    threads: int
    load_ns: int
    dtype: str | None = None
    tokens: str | None = None  #: the engine's own tokens, if it chooses them by itself
    slow_by: float = 0.0  #: share by which the engine was slowed on request
    #: the evidence that logits are numbers, if timed runs do not show them
    logits_seen: str | None = None
    #: the server in words, if it is one: its build and slots, and its unknown facts; for a command
    #: line its programs
    served: str | None = None
    #: the processes that share it, and the part of each, by their own reports
    group: str | None = None
    #: bytes that a step reads, for a model whose file does not show them
    bytes_per_token: int | None = None
    loads_each_run: bool = False
    #: the weights' buffers by device
    weights_mib: Mapping[str, float] = field(default_factory=dict)
    remote: RemoteFacts | None = None  #: the machine that computes instead of this one
    verbatim: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> Self:
        """Read the answer to `load`."""
        buffers_mib = _table(answer.get("buffers_mib") or {}, "buffers_mib")
        weights_mib = _value(Mapping[str, float], buffers_mib.get("model") or {}, "buffers_mib")
        return parsed(cls, answer, "load", weights_mib=weights_mib, verbatim=answer)

    def with_link_after(self, after: RemoteFacts | None) -> Self:
        """These, with how fast the link to another machine was when the model was freed."""
        return replace(self, remote=replace(self.remote, after=after)) if self.remote else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFacts:
    """The resolved facts of a context; None if the engine does not report one."""

    n_ctx: int | None
    type_k: str
    type_v: str
    flash_attn: str  #: `on`, `off`, `unknown`, or the engine's own words
    threads: int | None
    memory: EngineMemory | None = None
    rollback: str | None = None  #: how rejected tokens are removed, in a context that speculates
    drafted: str | None = None  #: a server's drafted and accepted tokens in the last run, in words
    client: str | None = None  #: the cost of requests to a server, in words
    #: a server's own facts before and after a run: its slots, and its constant facts; empty if it
    #: reports none
    states: tuple[Mapping[str, object], ...] = ()
    proof: str | None = None  #: the evidence in external programs' output, in words
    #: time of several programs outside their prompts and their output
    handoff_ns: int | None = None
    metal: MetalFacts | None = None  #: a Mac's GPU, as the log of the context describes it
    peak_rss_bytes: int = 0  #: the worker's peak resident memory after scoring; 0 of other contexts
    #: how a text's vector is made of its tokens', in words; None if it gives none
    pooling: str | None = None
    n_batch: int | None = None  #: tokens that a call may have; None if it is not reported
    n_ubatch: int | None = None  #: tokens of a physical batch; None if it is not reported
    verbatim: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, answer: object) -> Self:
        """Read the resolved context in an answer."""
        table = _table(answer, "context")
        memory = _value(EngineMemory | None, table.get("memory_bytes"), "memory_bytes")
        return parsed(cls, table, "context", memory=memory, verbatim=table)

    @property
    def n_slots(self) -> object:
        """Users that a server works for at once; None if it does not report it."""
        return self.states[-1].get("slots") if self.states else None


def parsed(kind: type[Value], answer: object, key: str, **given: object) -> Value:
    """A dataclass of an answer, each field that is not given checked against its declared type.

    A field without a default must be in the answer, null only where its type admits None. One with
    a default keeps that if it is null or missing. Objects that are empty count as null.
    """
    table, values = _table(answer, key), dict(given)
    types = _types(kind)  # type: ignore[arg-type]  # a class is hashable
    for declared in fields(kind):  # type: ignore[arg-type]  # a dataclass
        name = declared.name
        if name in given:
            continue
        value = optional(table, name, types[name])
        is_needed = declared.default is declared.default_factory is MISSING
        may_be_none = name in table and isinstance(types[name], UnionType)
        if value is None and is_needed and not may_be_none:
            raise _absent(table, name)
        if value is not None or is_needed:
            values[name] = value
    return kind(**values)


_types: Final = cache(get_type_hints)


def present(answer: Mapping[str, object], key: str) -> object:
    """A field that must be there and may be null."""
    if key not in answer:
        raise ValueError(f"`{key}` is missing")
    return answer[key]


def required(answer: Mapping[str, object], key: str, kind: type[Value]) -> Value:
    """A field that must be there, of a type."""
    value = optional(answer, key, kind)
    if value is None:
        raise _absent(answer, key)
    return value


def optional(answer: Mapping[str, object], key: str, kind: type[Value]) -> Value | None:
    """A field of a type; None if it is null or missing."""
    value: Value | None = _value(kind, answer.get(key), key)
    return value


def _value(kind: Any, value: object, key: str) -> Any:
    """A value of a declared type; None stays None."""
    of = get_args(kind)
    if value is None:
        return None
    if isinstance(kind, UnionType):
        return None if value == {} else _value(of[0], value, key)
    if is_dataclass(kind):
        return parsed(kind, value, key)  # type: ignore[arg-type]  # a class
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _mistyped(key, value, "a list")
        return tuple(_value(of[0], each, key) for each in value)
    if get_origin(kind) is Mapping:
        table = _table(value, key)
        is_plain = of[1] is object
        return table if is_plain else {printable(k): required(table, k, of[1]) for k in table}
    return _scalar(kind, value, key)


def _scalar(kind: type, value: object, key: str) -> object:
    if kind is float and type(value) is int:
        value = float(value)
    if isinstance(value, str):
        value = printable(value)
    if type(value) is kind and 0 <= _magnitude(value) < math.inf:
        return value
    raise _mistyped(key, value, _KINDS[kind])


def _magnitude(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


def _absent(answer: Mapping[str, object], key: str) -> ValueError:
    return ValueError(f"`{key}` is {'null' if key in answer else 'missing'}")


def _table(value: object, key: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _mistyped(key, value, "an object")
    return value


def _mistyped(key: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"`{key}` is {shown(value, 80)}, not {wanted}")
