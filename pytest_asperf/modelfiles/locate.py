"""From a model spec to a file that an engine can load, made on first use if possible."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from pytest_asperf.config.engine_settings import KV_TYPES, kv_bytes_per_element
from pytest_asperf.config.engines import FLOAT_LEVELS, MLX_ENGINES, level_recipe
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import ContextFacts, EngineBuild, EngineFacts, LoadedFacts, Worker
from pytest_asperf.errors import Advice, AsperfError, MislabelledError, ModelError, UnfitError
from pytest_asperf.modelfiles.cache import folder_sha256
from pytest_asperf.modelfiles.disk_use import FileState, HashedFiles, hash_files, state_of
from pytest_asperf.modelfiles.gguf_read import GgufInfo, bytes_per_token, gguf_parts, read_gguf
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.levels import fallback_text, largest_type
from pytest_asperf.modelfiles.mlx_read import (
    MlxInfo,
    hashed_files,
    inspect_mlx,
    mlx_bytes_per_token,
    weight_files,
)
from pytest_asperf.modelfiles.mlx_resolve import resolve_mlx
from pytest_asperf.modelfiles.model_shape import shape_difference
from pytest_asperf.modelfiles.resolve import resolve
from pytest_asperf.modelfiles.safetensors_read import data_start


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model at a quantization, as a checked file or folder."""

    ref: ModelRef
    path: Path
    sha256: str  #: its hash; of a folder or of several parts, over names and hashes of the files
    size_bytes: int
    info: GgufInfo | MlxInfo | None  #: the facts in the headers, None for a script
    files: HashedFiles | None = None  #: the hashed files, to check later that they are unchanged

    @property
    def level(self) -> str:
        """The quantization, or the model's name if it has the file's own."""
        return self.ref.level or self.ref.spec.name

    @property
    def title(self) -> str:
        """The title of a GGUF file, and its parameters; empty for any other file."""
        if not isinstance(self.info, GgufInfo):
            return ""
        n_params = self.info.n_params
        size = f"{n_params / 1e9:.3g}B" if n_params >= 1e9 else f"{n_params / 1e6:.3g}M"
        return f"{self.info.name}, {size}" if self.info.name else size

    @property
    def is_encoder(self) -> bool:
        """True if its file is known to be an encoder's."""
        return isinstance(self.info, GgufInfo) and bool(self.info.encoder)

    def require_causal(self) -> None:
        """Raise NoModelError for an encoder."""
        if isinstance(self.info, GgufInfo):
            self.info.require_causal()

    def made_rows(self) -> tuple[tuple[str, str], ...]:
        """The types of tensors that differ from the quantization's own, as label and text."""
        text = fallback_text(self.info) if isinstance(self.info, GgufInfo) else ""
        return (("tensors", text),) if text else ()

    def bytes_per_token(self, depth: int, loaded: LoadedFacts, context: ContextFacts) -> int | None:
        """The bytes of one TG step at a depth of the KV cache, None if unknown."""
        if self.info is None:
            return loaded.bytes_per_token
        float_bytes = KV_TYPES.get(loaded.dtype or "", 2.0)
        sizes = (
            kv_bytes_per_element(context.type_k, float_bytes),
            kv_bytes_per_element(context.type_v, float_bytes),
        )
        if isinstance(self.info, GgufInfo):
            return bytes_per_token(self.info, depth=depth, kv_bytes_per_element=sizes)
        return mlx_bytes_per_token(
            self.info, depth=depth, kv_bytes_per_element=sizes, float_bytes=float_bytes
        )


class ModelLocator:
    """Locates models for one build, making files if they are not made yet."""

    def __init__(
        self,
        build: EngineBuild,
        *,
        cache: Path,
        call_timeout_s: float,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._build = build
        self._on_wait = on_wait
        self._cache = cache
        self._call_timeout_s = call_timeout_s
        self._description: EngineFacts | AsperfError | None = None
        self._located: dict[ModelRef, tuple[FileState, LocatedModel]] = {}

    def on(self, build: EngineBuild) -> ModelLocator:
        """A locator in the same cache whose models another build makes."""
        return ModelLocator(
            build, cache=self._cache, call_timeout_s=self._call_timeout_s, on_wait=self._on_wait
        )

    def describe(self, worker: Worker | None = None) -> EngineFacts:
        """The engine's report about itself, read once: by a worker that runs, or by a new one."""
        if self._description is None:
            try:
                with nullcontext(worker) if worker else self._started() as asked:
                    self._description = asked.describe()
            except AsperfError as err:
                self._description = err
        if isinstance(self._description, AsperfError):
            raise self._description
        return self._description

    def locate(self, ref: ModelRef) -> LocatedModel:
        """A model's file, made if need be; located again if its files have changed."""
        sources = source_state(ref)
        known_sources, known = self._located.get(ref, (None, None))
        if known is not None and known_sources == sources and is_unchanged(known):
            return known
        engine = self._build.engine
        locate = {
            "scripted": self._locate_script,
            "openai": _locate_served,
            "command": self._locate_pipeline,
            **dict.fromkeys(MLX_ENGINES, self._locate_folder),
        }
        located = locate.get(engine, self._locate_gguf)(ref)
        _require_declared(located)
        self._located[ref] = (sources, located)
        return located

    def source_sha256(self, spec: ModelSpec) -> str | None:
        """The hash of the folder that a model's files are made from, None without one."""
        if spec.hf_folder is None:
            return None
        return folder_sha256(hashed_files(hf_source(spec, spec.hf_folder)), cache=self._cache)

    def _locate_gguf(self, ref: ModelRef) -> LocatedModel:
        path = resolve(
            ref,
            cache=self._cache,
            quantize=self._quantize,
            quantizer_id=self._quantizer_id,
            on_wait=self._on_wait,
        )
        files = hash_files(path, cache=self._cache)
        info = read_gguf(path)
        return LocatedModel(ref, path, files.sha256, info.nbytes, info, files)

    def _locate_folder(self, ref: ModelRef) -> LocatedModel:
        info = resolve_mlx(
            ref,
            cache=self._cache,
            quantize=self._quantize,
            quantizer_id=self._quantizer_id,
            on_wait=self._on_wait,
        )
        files = hash_files(info.path, cache=self._cache)
        return LocatedModel(ref, info.path, files.sha256, info.nbytes, info, files)

    def _locate_script(self, ref: ModelRef) -> LocatedModel:
        if ref.spec.variant is not None:
            raise ModelError(
                f"{ref.label}: variants are made of models, and this is a script",
                why="the script itself would be measured under the variant's name",
                remedy=Advice("use the script without its variant, or llama_cpp or mlx", "engine"),
            )
        path = dict(ref.spec.files).get(ref.level or "", ref.spec.gguf)
        if path is None or not path.is_file():
            raise (ModelError if path else UnfitError)(
                f"{ref.label}: there is no script {path or 'of this quantization'}",
                why="the scripted engine replays a model's script",
                remedy="write one with pytest_asperf.testing.write_script",
            )
        files = hash_files(path, cache=self._cache)
        return LocatedModel(ref, path, files.sha256, path.stat().st_size, None, files)

    def _locate_pipeline(self, ref: ModelRef) -> LocatedModel:
        """A description of the programs, in a file for the worker."""
        spec = ref.spec
        if spec.pipeline is None:
            raise UnfitError(
                f"{ref.label} has no programs to run",
                why="the engine command runs the command lines of a model",
                remedy=f"write `phases` in [tool.asperf.models.{spec.name}] (docs/pipelines.md)",
            )
        path = _own_file(ref)
        files = hash_files(path, cache=self._cache) if path else None
        text = spec.pipeline.as_json(path)
        sha256 = hashlib.sha256(f"{files.sha256 if files else ''}{text}".encode()).hexdigest()
        described = self._cache / "pipelines" / f"{sha256}.json"
        described.parent.mkdir(parents=True, exist_ok=True)
        for left in described.parent.glob("*-*"):
            pid = left.name.partition("-")[0]
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        described.write_text(text, "utf-8")
        size = sum(stat[1] for stat in files.state) if files else 0
        return LocatedModel(ref, described, sha256, size, None, files)

    def _started(self) -> Worker:
        return Worker(self._build, call_timeout_s=self._call_timeout_s)

    def _quantizer_id(self) -> str:
        return (self.describe().library_sha256 or "unknown")[:16]

    def _quantize(self, source: Path, target: Path, level: str) -> None:
        with self._started() as worker:
            worker.quantize(source, target, level_recipe(level, self._build.engine))


def _require_declared(model: LocatedModel) -> None:
    """Reject a published quantization whose first file is of another model."""
    first = next(iter(dict(model.ref.spec.files).values()), model.path)
    if first == model.path or model.info is None:
        return
    try:
        info = inspect_mlx(first) if first.is_dir() else read_gguf(first)
    except ModelError:  # a test that needs that file reports it
        return
    require_one_model((str(model.path), model.info), (str(first), info))


def require_one_model(
    one: tuple[str, GgufInfo | MlxInfo | None],
    other: tuple[str, GgufInfo | MlxInfo | None],
    *,
    may_be_tuned: bool = False,
) -> None:
    """Reject two models, given by name and headers, that are no quantizations of one model.

    A model that was tuned further may compute by other rules, such as another RoPE base.
    """
    (name, info), (other_name, other_info) = one, other
    if info is None or other_info is None:
        return
    difference = shape_difference(info.shape, other_info.shape, sizes_only=may_be_tuned)
    one_has, other_has = (getattr(header, "vocabulary", None) for header in (info, other_info))
    if one_has and other_has and not one_has.has_tokens_of(other_has):
        difference = difference or "their tokens differ"
    if difference:
        raise MislabelledError(
            f"{name} and {other_name} are two models: {difference}",
            why="a quantization has the sizes, tokens and metadata (RoPE, norms, experts) of its "
            "model; between two models, neither speed nor quality shows what a quantization does",
            remedy="declare the quantization that was made of the same model, or give the other "
            "model a name of its own",
        )


def _locate_served(ref: ModelRef) -> LocatedModel:
    """A model of a running server, whose file is unknown here."""
    return LocatedModel(ref, Path(ref.spec.name), "", 0, None)


def _own_file(ref: ModelRef) -> Path | None:
    """The file or folder for the placeholder `{model}`; None if the programs have none."""
    spec = ref.spec
    path = dict(spec.files).get(ref.level or "", spec.gguf)
    if spec.hf_folder is not None:
        path = hf_source(spec, spec.hf_folder)
    is_made = ref.level is not None and not spec.files
    needed = spec.pipeline is not None and spec.pipeline.takes_model
    if is_made or (needed and path is None):
        raise UnfitError(
            f"{ref.label}: no file of that quantization is declared",
            why="programs run files as they are, and none is made for them",
            remedy="declare it in the model's `files`, by its quantization",
        )
    if path is not None and not path.exists():
        raise ModelError(
            f"{ref.label}: there is no {path}", remedy="correct its path in the configuration"
        )
    return path


def is_unchanged(model: LocatedModel) -> bool:
    """True if a model's files are those that were hashed when it was located."""
    return model.files is None or model.files.is_unchanged


def source_state(ref: ModelRef) -> FileState:
    """A state that differs once the files of a model, or its sources, have changed."""
    spec = ref.spec
    files = dict(spec.files)
    named = [files[ref.level]] if ref.level in files else [*files.values()]
    named += [spec.gguf] if spec.gguf else []
    if spec.hf_folder:
        with suppress(ModelError):  # an absent model has no state; locating it raises the error
            named.append(hf_source(spec, spec.hf_folder))
    return tuple(state for path in named for state in state_of(path))


def work_of(base: LocatedModel, chunks: Sequence[Sequence[int]]) -> dict[str, str]:
    """Hashes of the baseline, tokens and tokenizer, to check that two scores are comparable."""
    tokens = hashlib.sha256(json.dumps([list(chunk) for chunk in chunks]).encode()).hexdigest()
    parts = {"baseline": base.sha256, "tokens": tokens}
    if base.info is not None and base.info.tokenizer_sha256 is not None:
        parts["tokenizer"] = base.info.tokenizer_sha256
    return {name: f"sha256 {digest[:12]}" for name, digest in parts.items()}


def shown_same(base: LocatedModel, model: LocatedModel) -> str:
    """The proof by the files that a quantization is its baseline; empty without one.

    One file under other settings is another variant: with another KV cache, for one.
    """
    if base.ref.spec.settings != model.ref.spec.settings:
        return ""
    if base.sha256 == model.sha256:
        return f"both are the file sha256 {base.sha256[:12]}"
    if same_tensors(base.info, model.info):
        return "both files have the same tensors to the last bit"
    return ""


def why_lossless(base: LocatedModel, model: LocatedModel) -> str:
    """The reason why a quantization may score exactly as its baseline; empty without one."""
    types = float_types(base.info, model.info)
    return f"{types[0]} and {types[1]} have equal unquantized weights" if types else ""


def same_tokenizer(base: LocatedModel, model: LocatedModel) -> LocatedModel:
    """The model, if its tokens are the baseline's."""
    if base.info is None or model.info is None:
        return model
    if base.info.tokenizer_sha256 != model.info.tokenizer_sha256:
        raise ModelError(
            f"{model.ref.label} and {base.ref.label} have different tokenizers",
            why="their tokens differ: PPL and KLD cannot be compared, nor one draft for the other",
            remedy="compare quantizations of one model, made from the same source; use a "
            "draft of the target's family",
        )
    return model


def require_draft(target: LocatedModel, draft: LocatedModel) -> None:
    """Reject a draft that splits text otherwise; padding behind the target's tokens is allowed."""
    known = [m.info.vocabulary for m in (target, draft) if isinstance(m.info, GgufInfo)]
    one, other = (*known, None, None)[:2]
    if not (one and other and one.pairs_with(other)):
        same_tokenizer(target, draft)


def same_model(base: LocatedModel, model: LocatedModel) -> LocatedModel:
    """The model, if it is of the baseline's tokens, architecture and sizes."""
    same_tokenizer(base, model)
    require_one_model(
        (model.ref.label, model.info),
        (base.ref.label, base.info),
        may_be_tuned=base.ref.spec.name != model.ref.spec.name,
    )
    return model


def require_same_start(
    base: tuple[LocatedModel, bool | None], model: tuple[LocatedModel, bool | None]
) -> None:
    """Reject a quantization that begins a text with BOS if its baseline does not, or the reverse.

    Equal tokenizers do not show it: it is a separate setting.
    """
    if base[1] == model[1]:
        return
    first, other = (base, model) if base[1] else (model, base)
    raise ModelError(
        f"{first[0].ref.title} begins a text with BOS and {other[0].ref.title} does not",
        why="each chunk begins with it, so PPL and KLD would compare two different texts",
        remedy="make both from the same source, or correct the tokenizer's configuration of one",
    )


Info = GgufInfo | MlxInfo | None

_BLOCK_BYTES: Final = 1 << 20


def same_tensors(one: Info, other: Info) -> bool:
    """True if two files, or folders, have equal tensors, read only if their shapes agree."""
    if isinstance(one, GgufInfo) and isinstance(other, GgufInfo):
        is_whole = all(len(gguf_parts(info.path)) == 1 for info in (one, other))
        return (
            is_whole
            and one.tensors == other.tensors
            and _same_bytes((one.path, one.data_start), (other.path, other.data_start))
        )
    if isinstance(one, MlxInfo) and isinstance(other, MlxInfo):
        files = [weight_files(info.path) for info in (one, other)]
        return (
            one.tensors == other.tensors
            and len(files[0]) == len(files[1])
            and all(
                _same_bytes((a, data_start(a)), (b, data_start(b)))
                for a, b in zip(*files, strict=True)
            )
        )
    return False


def float_types(one: Info, other: Info) -> tuple[str, str] | None:
    """The types of two models' weights where they differ and neither is quantized."""
    types = _weights_type(one), _weights_type(other)
    if types[0] == types[1] or not set(types) <= set(FLOAT_LEVELS):
        return None
    return types


def _weights_type(info: Info) -> str:
    if isinstance(info, GgufInfo):
        return largest_type(info)
    return (info.level if info else None) or ""


def _same_bytes(one: tuple[Path, int], other: tuple[Path, int]) -> bool:
    """Compare two files from a position in each to the end of the shorter."""
    with one[0].open("rb") as a, other[0].open("rb") as b:
        a.seek(one[1])
        b.seek(other[1])
        while (left := a.read(_BLOCK_BYTES)) and (right := b.read(_BLOCK_BYTES)):
            n = min(len(left), len(right))
            if left[:n] != right[:n]:
                return False
    return True
