"""Models, builds and speculative pairs as a run names them: frozen, validated once.

Everything below the shell speaks in these; there are no keyword dictionaries past this point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path  # dataclass fields are resolved at run time by readers
from typing import Final, Literal

from pytest_asperf.config.build_sources import Source
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import SERVER_ENGINES, TEXT_ENGINES, Engine
from pytest_asperf.config.pipeline import Pipeline
from pytest_asperf.errors import ConfigError, shown, suggest

VariantKind = Literal["layers", "experts", "mixture", "hybrid", "recurrent"]

_VARIANT: Final = re.compile(r"(?P<kind>[a-z]+)(=(?P<n>[1-9]\d{0,2}))?")

#: Kinds of variants with the number that each has where none is named; None if one must be.
_VARIANTS: Final[dict[VariantKind, int | None]] = {
    "layers": None,
    "experts": 8,
    "mixture": 8,
    "hybrid": 0,
    "recurrent": 2,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a model that keeps its results and not their cost."""

    #: `layers`, n more layers that add nothing; `experts`, n copies of each feed-forward part, of
    #: which one is used for a token; `mixture`, n that differ, of which two are used, with nearly
    #: the model's results; `hybrid`, a recurrent part that adds nothing; `recurrent`, n layers of
    #: random weights, which is another function
    kind: VariantKind
    n: int


def parse_variant(text: str, *, where: str) -> Variant:
    """Read the text after the plus of `asperf-target+layers=8`."""
    match = _VARIANT.fullmatch(text)
    for kind, default in _VARIANTS.items():
        if match and match["kind"] == kind and bool(match["n"]) <= (default != 0):
            n = int(match["n"]) if match["n"] else default
            if n is not None:
                return Variant(kind, n)
    raise ConfigError(
        f"{where}: {shown(text, 80)} is not a variant of a model"
        f"{suggest(text.partition('=')[0], _VARIANTS)}",
        remedy="use layers=N, experts=N, mixture=N, hybrid or recurrent=N, as in "
        "asperf-target+layers=8",
    )


@dataclass(frozen=True, slots=True)
class Build:
    """An engine build to compare with another: its source, and settings over the model's."""

    name: str
    source: Source
    settings: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model with a name: the place of its weights, and its settings.

    Exactly one of `hf_folder` and `gguf` is the source, or `files` has GGUF files by quantization.
    """

    name: str
    #: a folder in Hugging Face format; quantizations are made from it
    hf_folder: Path | None = None
    #: the model of the Hugging Face hub that is meant where that folder does not exist
    hub_id: str | None = None
    gguf: Path | None = None  #: one GGUF file; other quantizations are made from it
    #: published files by quantization, GGUF files or MLX folders; none is made from another
    files: tuple[tuple[str, Path], ...] = ()
    engine: Engine | None = None  #: the engine that runs it; None is the session's
    settings: EngineSettings = field(default_factory=EngineSettings)
    #: settings for one engine only, over `settings`
    own_settings: tuple[tuple[Engine, EngineSettings], ...] = ()
    #: a text file to score for PPL, or None for the shipped held-out corpus
    corpus: Path | None = None
    #: the padding of the source before it is measured or quantized, None for nothing
    variant: Variant | None = None
    pipeline: Pipeline | None = None  #: the external programs of the engine `command`

    def on(self, engine: Engine) -> ModelSpec:
        """This model on an engine, with the settings that it has there."""
        own = dict(self.own_settings).get(engine, EngineSettings())
        return replace(self, engine=engine, settings=self.settings.merged(own), own_settings=())

    def with_settings(self, settings: EngineSettings) -> ModelSpec:
        """This model run with these settings over its own."""
        return replace(self, settings=self.settings.merged(settings))


def _on(engine: Engine | None) -> str:
    """The engine in a title; empty for llama.cpp's library and binaries."""
    named = engine == "mlx" or engine in TEXT_ENGINES
    return f" on {engine}" if named else ""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model at a quantization (`asperf-target:Q6_K`); without one it is the model's own file."""

    spec: ModelSpec
    level: str | None = None

    @property
    def label(self) -> str:
        """The model spec, `name:QUANT` or `name`."""
        return f"{self.spec.name}:{self.level}" if self.level else self.spec.name

    @property
    def title(self) -> str:
        """The model spec with each setting that is no default: KV cache, engine, machine."""
        settings = self.spec.settings
        kv = f" KV {settings.kv_name}" if settings.kv_name else ""
        engine = _on(self.spec.engine)
        return f"{self.label}{kv}{engine}{f' on {settings.remote}' if settings.remote else ''}"

    def with_kv(self, settings: EngineSettings) -> ModelRef:
        """The same weights with the KV cache of these settings."""
        kept = self.spec.settings.with_kv(settings)
        return replace(self, spec=replace(self.spec, settings=kept))


Rollback = Literal["auto", "trim", "checkpoint"]

#: The draft that is no model: the text after the last occurrence of the text's end.
NGRAM_DRAFT: Final = "ngram"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Speculation to measure: a draft (None looks up in the text), its target, and the prompts."""

    target: ModelRef
    draft: ModelRef | None
    k: int = 4  #: tokens drafted per round
    temperature: float = 0.0  #: 0 for greedy decoding; otherwise tokens are sampled at it
    n_tokens: int = 64  #: tokens generated after each prompt
    #: how rejected tokens are dropped; `auto` is the engine's own choice
    rollback: Rollback = "auto"
    prompts: Path | None = None

    @property
    def refs(self) -> tuple[ModelRef, ...]:
        """Its models, the target first."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def label(self) -> str:
        """Its label: `draft → target, k=4`."""
        draft = NGRAM_DRAFT
        if self.draft is None and self.target.spec.engine in SERVER_ENGINES:
            return f"{self.target.label} with its server's draft"
        if self.draft:
            remote = self.draft.spec.settings.remote
            draft = f"{self.draft.label} on {remote}" if remote else self.draft.label
        sampled = f", T={self.temperature:g}" if self.temperature else ""
        return f"{draft} → {self.target.label}, k={self.k}{sampled}"
