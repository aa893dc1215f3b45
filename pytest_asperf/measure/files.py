"""From an address to a file that an engine can load, made on first use where it can be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_asperf.errors import AsperfError, ModelError
from pytest_asperf.host import Worker
from pytest_asperf.modelfiles.cache import file_sha256
from pytest_asperf.modelfiles.gguf_read import GgufInfo, inspect_gguf
from pytest_asperf.modelfiles.resolve import resolve
from pytest_asperf.spec import LLAMA_FTYPES, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.host import EngineBuild


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model at a level, as a checked file.

    Attributes:
        ref: the address.
        path: the file.
        sha256: its hash.
        size_bytes: its size.
        info: what a GGUF file's header says, None for other formats.
    """

    ref: ModelRef
    path: Path
    sha256: str
    size_bytes: int
    info: GgufInfo | None

    @property
    def level(self) -> str:
        """The level, or the model's name where it has the file's own."""
        return self.ref.level or self.ref.spec.name


class ModelShelf:
    """Locates models for one build, making files where they are not made yet."""

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
        self._description: dict[str, Any] | AsperfError | None = None
        self._located: dict[ModelRef, LocatedModel] = {}

    def describe(self) -> dict[str, Any]:
        """Return what the engine says of itself, asked once."""
        if self._description is None:
            try:
                with Worker(self._build) as worker:
                    self._description = worker.describe()
            except AsperfError as err:
                self._description = err
        if isinstance(self._description, AsperfError):
            raise self._description
        return self._description

    def locate(self, ref: ModelRef) -> LocatedModel:
        """Return a model's file, made if need be.

        Raises:
            ModelError: the file is missing, broken, or cannot be made.
            CacheError: the cache folder cannot be used.
            EngineError: the engine is missing, or failed while quantising.
        """
        if ref not in self._located:
            locate = self._locate_script if self._build.engine == "scripted" else self._locate_gguf
            self._located[ref] = locate(ref)
        return self._located[ref]

    def _locate_gguf(self, ref: ModelRef) -> LocatedModel:
        path = resolve(
            ref,
            cache=self._cache,
            quantize=self._quantize,
            quantizer_id=lambda: str(self.describe().get("library_sha256", "unknown"))[:16],
            on_wait=self._on_wait,
        )
        info = inspect_gguf(path)
        return LocatedModel(
            ref, path, file_sha256(path, cache=self._cache), path.stat().st_size, info
        )

    def _locate_script(self, ref: ModelRef) -> LocatedModel:
        path = dict(ref.spec.files).get(ref.level or "", ref.spec.gguf)
        if path is None or not path.is_file():
            raise ModelError(
                f"{ref.label}: there is no script {path or 'of this level'}",
                why="the scripted engine does what a model's script says",
                remedy="write one with pytest_asperf.testing.write_script",
            )
        return LocatedModel(
            ref, path, file_sha256(path, cache=self._cache), path.stat().st_size, None
        )

    def _quantize(self, source: Path, target: Path, level: str) -> None:
        with Worker(self._build, call_timeout_s=self._call_timeout_s) as worker:
            worker.quantize(source, target, LLAMA_FTYPES[level])


def same_tokenizer(base: LocatedModel, model: LocatedModel) -> LocatedModel:
    """Return the model, if its tokens are the baseline's.

    Raises:
        ModelError: they are not.
    """
    if base.info is None or model.info is None:
        return model
    if base.info.tokenizer_sha256 != model.info.tokenizer_sha256:
        raise ModelError(
            f"{model.ref.label} and {base.ref.label} have different tokenizers",
            why="their tokens differ: PPL and KLD cannot be compared, nor one draft for the other",
            remedy="compare levels of one model, made from the same source; take a draft of the "
            "target's family",
        )
    return model
