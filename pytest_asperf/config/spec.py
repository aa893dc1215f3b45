"""What can be asked for: levels, engine settings, models, workloads. Frozen, validated once.

Everything below the shell speaks in these; there are no keyword dictionaries past this point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path  # noqa: TC003  # dataclass fields are resolved at run time by readers
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pytest_asperf.config.engines import MLX_GROUP_SIZE, MlxScheme, mlx_scheme
from pytest_asperf.errors import ConfigError, listing, shown, suggest

if TYPE_CHECKING:
    from pytest_asperf.config.build_sources import Source
    from pytest_asperf.config.engines import Engine

FlashAttention = Literal["auto", "on", "off"]

#: Engines keep these numbers in 32 bits.
_LARGEST: Final = 2**31 - 1
WorkloadKind = Literal["pp", "tg", "ttft", "sd"]

#: Types a KV cache can be kept in, with the value of `ggml_type` (ggml.h).
KV_TYPES: Final[dict[str, int]] = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}

#: Bytes an element of the KV cache takes, from ggml's block sizes (type_size / block_size).
KV_BYTES_PER_ELEMENT: Final[dict[str, float]] = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_1": 20 / 32,
    "iq4_nl": 18 / 32,
    "q5_0": 22 / 32,
    "q5_1": 24 / 32,
}

#: What MLX can quantise a KV cache to: bits of an element, and elements that share a scale.
MLX_KV_BITS: Final = (2, 3, 4, 5, 6, 8)
MLX_KV_GROUP_SIZES: Final = (32, 64, 128)


def kv_bytes_per_element(name: str, float_bytes: float = 2.0) -> float:
    """Return the bytes that an element of a KV cache takes.

    Args:
        name: one of `KV_TYPES`, or MLX's `8bit`, `4bit-g32`.
        float_bytes: of a number in the type that MLX computes in: the scale and the offset of a
            group are kept in it.
    """
    scheme = mlx_scheme(name)
    if scheme is None:
        return KV_BYTES_PER_ELEMENT[name]
    return scheme.bits / 8 + 2 * float_bytes / scheme.group_size


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine runs a model; ``None`` leaves the engine's own tools' default.

    Attributes:
        threads: CPU threads for decoding and batches.
        n_gpu_layers: layers kept on a GPU; the default is all, where a GPU backend is built in.
        flash_attn: flash attention.
        type_k: type of the K cache, one of `KV_TYPES`.
        type_v: type of the V cache, one of `KV_TYPES`.
        kv_bits: bits of an element of MLX's KV cache, one of `MLX_KV_BITS`; unset, it is not
            quantised.
        kv_group_size: elements of it that share a scale, one of `MLX_KV_GROUP_SIZES`.
        n_batch: logical batch, in tokens.
        n_ubatch: physical batch, in tokens.
        slow_by: share of each step's time that is added to it, to see that a gate finds it.
    """

    threads: int | None = None
    n_gpu_layers: int | None = None
    flash_attn: FlashAttention | None = None
    type_k: str | None = None
    type_v: str | None = None
    kv_bits: int | None = None
    kv_group_size: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    slow_by: float | None = None

    def merged(self, other: EngineSettings) -> EngineSettings:
        """Return these settings with every value that `other` sets taken from it."""
        changed = {f.name: v for f in fields(other) if (v := getattr(other, f.name)) is not None}
        return replace(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        """Return what was set, by name; unset values are left out."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    @property
    def kv_types(self) -> tuple[str, str]:
        """The types of K and V; `f16` where none is asked for, which MLX takes as its own type."""
        if self.kv_bits is not None:
            level = MlxScheme(self.kv_bits, self.kv_group_size or MLX_GROUP_SIZE).level
            return level, level
        return self.type_k or "f16", self.type_v or "f16"

    @property
    def kv_name(self) -> str:
        """The type of the KV cache, `K/V` where they differ; empty for the one by default."""
        type_k, type_v = self.kv_types
        if (type_k, type_v) == ("f16", "f16"):
            return ""
        return type_k if type_k == type_v else f"{type_k}/{type_v}"

    def with_kv(self, other: EngineSettings) -> EngineSettings:
        """Return these settings with the KV cache of others, whatever these say of it."""
        return replace(self, **{name: getattr(other, name) for name in _OF_KV})


#: The settings that decide the type of the KV cache.
_OF_KV: Final = ("type_k", "type_v", "kv_bits", "kv_group_size")
_MLX_KV: Final = {"kv_bits": MLX_KV_BITS, "kv_group_size": MLX_KV_GROUP_SIZES}


def parse_settings(table: dict[str, object], *, where: str) -> EngineSettings:
    """Read engine settings from a table of a configuration file or a marker.

    Raises:
        ConfigError: an unknown key, or a value of the wrong kind.
    """
    valid = [f.name for f in fields(EngineSettings)]
    for key, value in table.items():
        if key not in valid:
            raise ConfigError(
                f"{where}: unknown engine setting {shown(key, 80)}{suggest(key, valid)}",
                why="a setting that is silently ignored measures something else than was asked",
                remedy=f"use one of {listing(valid)}",
            )
        _check_setting(key, value, where=where)
    return EngineSettings(**table)  # type: ignore[arg-type]  # checked key by key above


def parse_kv_type(name: str, *, where: str) -> EngineSettings:
    """Read the type of a KV cache, as a rung of a ladder names it.

    Args:
        name: a type of llama.cpp's for both (`q8_0`) or for K and V (`q8_0/f16`), or MLX's bits,
            with the size of a group or not (`8bit`, `4bit-g32`).
        where: the marker that it stands in, for the message.

    Raises:
        ConfigError: no such type.
    """
    type_k, _, type_v = name.lower().partition("/")
    type_v = type_v or type_k
    if type_k in KV_TYPES and type_v in KV_TYPES:
        return EngineSettings(type_k=type_k, type_v=type_v)
    scheme = mlx_scheme(name)
    if scheme and (scheme.mode, scheme.group_size in MLX_KV_GROUP_SIZES) == ("affine", True):
        return EngineSettings(kv_bits=scheme.bits, kv_group_size=scheme.group_size)
    mlx_names = [f"{bits}bit" for bits in MLX_KV_BITS]
    raise ConfigError(
        f"{where}: unknown type of KV cache {shown(name, 80)}"
        f"{suggest(name.lower(), [*KV_TYPES, *mlx_names])}",
        why="the type decides which cache is measured",
        remedy=f"on llama.cpp use one of {listing(KV_TYPES)}, or two as K/V, such as q8_0/f16; on "
        f"mlx one of {listing(mlx_names)}, or with the size of a group, such as 4bit-g32",
    )


def _check_setting(key: str, value: object, *, where: str) -> None:
    if key == "flash_attn":
        words = get_args(FlashAttention)
        accepted, ok = listing(words), isinstance(value, str) and value in words
    elif key == "slow_by":
        accepted = "a share from 0 to 10, such as 0.07"
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 10
    elif key in {"type_k", "type_v"}:
        accepted, ok = listing(KV_TYPES), isinstance(value, str) and value in KV_TYPES
    elif key in _MLX_KV:
        accepted = listing(map(str, _MLX_KV[key]))
        ok = type(value) is int and value in _MLX_KV[key]
    else:
        least = 0 if key == "n_gpu_layers" else 1
        accepted = f"a whole number from {least} to {_LARGEST}"
        ok = isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST
    if not ok:
        raise ConfigError(
            f"{where}: {key} = {shown(value)} is not usable",
            why="the engine would refuse it, or run something else",
            remedy=f"{key} takes {accepted}",
        )


@dataclass(frozen=True, slots=True)
class Build:
    """An engine build that can be held against another: where it comes from, and settings over it.

    Attributes:
        name: what it was called.
        source: what it is, or is made from.
        settings: engine settings over the model's own.
    """

    name: str
    source: Source
    settings: EngineSettings = field(default_factory=EngineSettings)


VariantKind = Literal["layers", "experts", "hybrid", "recurrent"]

_VARIANT: Final = re.compile(r"(?P<kind>[a-z]+)(=(?P<n>[1-9]\d{0,2}))?")
#: Kinds of variants with the number that each has where none is named; None where one must be.
_VARIANTS: Final[dict[VariantKind, int | None]] = {
    "layers": None,
    "experts": 8,
    "hybrid": 0,
    "recurrent": 2,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a model that keeps what it computes and not what that costs.

    Attributes:
        kind: `layers`, n more layers that add nothing; `experts`, n copies of each feed-forward
            part, of which one is used for a token; `hybrid`, a recurrent part that adds nothing;
            `recurrent`, n layers of random weights, which is another function.
        n: how many.
    """

    kind: VariantKind
    n: int


def parse_variant(text: str, *, where: str) -> Variant:
    """Read what stands behind the plus of `asperf-target+layers=8`.

    Raises:
        ConfigError: no such variant, or not the number it needs.
    """
    match = _VARIANT.fullmatch(text)
    for kind, default in _VARIANTS.items():
        if match and match["kind"] == kind and bool(match["n"]) <= (default != 0):
            n = int(match["n"]) if match["n"] else default
            if n is not None:
                return Variant(kind, n)
    raise ConfigError(
        f"{where}: {shown(text, 80)} is not a variant of a model"
        f"{suggest(text.partition('=')[0], _VARIANTS)}",
        why="it decides what a step costs, and how it is rolled back",
        remedy="use layers=N, experts=N, hybrid or recurrent=N, as in asperf-target+layers=8",
    )


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that can be addressed by name: where its weights are and how it is run.

    Exactly one of `hf_folder` and `gguf` is the source, or `files` maps levels to GGUF files.

    Attributes:
        name: what markers and options call it.
        hf_folder: a folder in Hugging Face format; levels are made from it.
        hub_id: the model of the Hugging Face hub that is meant where that folder does not exist.
        gguf: one GGUF file; other levels are quantised from it.
        files: what somebody published by level, GGUF files or MLX folders; no level is made from
            another.
        engine: the engine that runs it; None is the session's.
        settings: engine settings for this model.
        own_settings: those that hold on one engine only, over `settings`.
        corpus: a text file to score for PPL, or None for the shipped held-out corpus.
        variant: what is made of the source before it is measured or quantised, None for nothing.
    """

    name: str
    hf_folder: Path | None = None
    hub_id: str | None = None
    gguf: Path | None = None
    files: tuple[tuple[str, Path], ...] = ()
    engine: Engine | None = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    own_settings: tuple[tuple[Engine, EngineSettings], ...] = ()
    corpus: Path | None = None
    variant: Variant | None = None

    def on(self, engine: Engine) -> ModelSpec:
        """Return this model on an engine, with the settings that it has there."""
        own = dict(self.own_settings).get(engine, EngineSettings())
        return replace(self, engine=engine, settings=self.settings.merged(own), own_settings=())

    def with_settings(self, settings: EngineSettings) -> ModelSpec:
        """Return this model run with these settings over its own."""
        return replace(self, settings=self.settings.merged(settings))


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model at a level, as a test addresses it (`asperf-target:Q6_K`).

    Attributes:
        spec: the model.
        level: the level, or None for the model's own file as it is.
    """

    spec: ModelSpec
    level: str | None = None

    @property
    def label(self) -> str:
        """The address, `name:LEVEL` or `name`."""
        return f"{self.spec.name}:{self.level}" if self.level else self.spec.name

    @property
    def title(self) -> str:
        """The address, with what does not go without saying: the KV cache, and the engine."""
        kv = f" KV {name}" if (name := self.spec.settings.kv_name) else ""
        return f"{self.label}{kv}{' on mlx' if self.spec.engine == 'mlx' else ''}"

    def with_kv(self, settings: EngineSettings) -> ModelRef:
        """Return the same weights with the KV cache of these settings."""
        kept = self.spec.settings.with_kv(settings)
        return replace(self, spec=replace(self.spec, settings=kept))


Rollback = Literal["auto", "trim", "checkpoint"]

#: The draft that is no model: what followed the last occurrence of the text's end.
NGRAM_DRAFT: Final = "ngram"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Speculation to measure: which draft, which target, on what.

    Attributes:
        target: the model whose output it is.
        draft: the model that proposes, None for lookup in the text.
        k: tokens drafted per round.
        temperature: 0 for greedy decoding; else tokens are sampled at it.
        n_tokens: tokens generated after each prompt.
        rollback: how rejected tokens are forgotten; `auto` is whatever the engine can.
        prompts: a file of prompts by category, None for the shipped ones.
    """

    target: ModelRef
    draft: ModelRef | None
    k: int = 4
    temperature: float = 0.0
    n_tokens: int = 64
    rollback: Rollback = "auto"
    prompts: Path | None = None

    @property
    def label(self) -> str:
        """What it is called: `draft → target, k=4`."""
        draft = self.draft.label if self.draft else NGRAM_DRAFT
        sampled = f", T={self.temperature:g}" if self.temperature else ""
        return f"{draft} → {self.target.label}, k={self.k}{sampled}"


_KINDS: Final[dict[str, WorkloadKind]] = {"pp": "pp", "tg": "tg", "ttft": "ttft"}
_WORKLOAD: Final = re.compile(
    r"(?P<kind>pp|tg|ttft)(?P<tokens>[1-9]\d{0,6})(@d(?P<depth>\d{1,7}))?"
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One timed piece of work: `pp512`, `tg128`, `tg128@d1024`, `ttft512`.

    Attributes:
        kind: `pp`, tokens of a prompt in batches; `tg`, tokens one at a time; `ttft`, a prompt
            until its first output token is chosen; `sd`, tokens generated with a draft.
        n_tokens: tokens counted and timed.
        depth: tokens of context in the KV cache beforehand, prefilled untimed.
    """

    kind: WorkloadKind
    n_tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        if self.kind == "sd":
            return self.kind
        return f"{self.kind}{self.n_tokens}" + (f"@d{self.depth}" if self.depth else "")

    @property
    def n_ctx(self) -> int:
        """The context it needs, in tokens."""
        return self.depth + self.n_tokens


def parse_workload(name: str, *, where: str) -> Workload:
    """Read a workload's name.

    Raises:
        ConfigError: the name is not of the form `pp512`, `tg128`, `tg128@d1024` or `ttft512`.
    """
    match = _WORKLOAD.fullmatch(name)
    if match is None or (match["kind"] == "ttft" and match["depth"]):
        raise ConfigError(
            f"{where}: {shown(name, 80)} is not a workload",
            why="the name says what is timed: prompt or generation, how many tokens, at what depth",
            remedy="write pp512, tg128, tg128@d1024 (generation after 1024 tokens of context), or "
            "ttft512 (a prompt of 512 tokens until the first output token)",
        )
    kind: WorkloadKind = _KINDS[match["kind"]]
    return Workload(kind, int(match["tokens"]), int(match["depth"] or 0))
