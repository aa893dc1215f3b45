"""From a model's address to the GGUF file that is measured: given, converted or quantised."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_asperf.errors import Advice, MislabelledError, ModelError, UnfitError, listing
from pytest_asperf.modelfiles.cache import file_sha256
from pytest_asperf.modelfiles.convert import CONVERTER_VERSION, HF_FILES, hf_to_gguf
from pytest_asperf.modelfiles.gguf_read import inspect_gguf
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.levels import contradiction, require_quantizable
from pytest_asperf.modelfiles.maker import ModelMaker, Quantize
from pytest_asperf.modelfiles.variant_gguf import require_variable, write_variant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.config.spec import ModelRef, ModelSpec


def resolve(
    ref: ModelRef,
    *,
    cache: Path,
    quantize: Quantize,
    quantizer_id: Callable[[], str],
    on_wait: Callable[[str], None] | None = None,
) -> Path:
    """The GGUF file of a model at a level, or its own, made if need be.

    `quantize` and `quantizer_id`, the quantiser's build, are called only to make a level: another
    build makes its own files. `on_wait` is called once, when another process is making the file.

    Raises:
        ModelError: the source is missing or broken, or the level cannot be made from it.
        CacheError: the cache folder cannot be used.
    """
    spec = ref.spec
    if spec.files and spec.variant is None:
        return published_file(ref)
    if spec.hf_folder is not None:
        folder = hf_source(spec, spec.hf_folder)
        source = _converted(spec, folder, cache=cache, on_wait=on_wait)
    elif spec.gguf is not None:
        source = spec.gguf
    else:
        raise without_source(spec)
    maker = ModelMaker(spec, cache, ".gguf", on_wait)
    if spec.variant is not None:
        require_variable(inspect_gguf(source))
        sha256 = file_sha256(source, cache=cache)
        source = maker.variant(spec.variant, source, sha256, write_variant)
    info = inspect_gguf(source)
    level = ref.level
    if level is None:
        return source
    if level == info.level:
        _require_level(source, level)
        return source
    require_quantizable(info, level)
    recipe = {"source_sha256": file_sha256(source, cache=cache), "quantizer": quantizer_id()}

    def build(target: Path) -> None:
        quantize(source, target, level)
        _require_level(target, level)

    return maker.made(level, recipe, build)


def published_file(ref: ModelRef) -> Path:
    """The file that somebody published of a model at a level."""
    level, path = published(ref)
    if path.is_dir():
        raise UnfitError(
            f"{path}: {ref.label} is a folder, and llama.cpp measures GGUF files",
            why="published files are measured as they are; none is made of a folder of weights "
            "that may be quantised already",
            remedy=Advice("give a GGUF file for the level, or measure it on MLX", engine="mlx"),
        )
    _require_level(path, level)
    return path


def published(ref: ModelRef) -> tuple[str, Path]:
    """The level and the path of a model that is declared by `files`."""
    files = dict(ref.spec.files)
    level = ref.level or (next(iter(files)) if len(files) == 1 else None)
    if level not in files:
        what = f"has no file at {level}" if level else "has several files, and no level is asked"
        raise UnfitError(
            f"the model {ref.spec.name!r} {what}",
            why="published files are measured as they are; no level is made from another",
            remedy=f"use one of {listing(files)}, as in {ref.spec.name}:{min(files)}",
        )
    return level, files[level]


def _require_level(path: Path, level: str) -> None:
    if other := contradiction(inspect_gguf(path), level):
        raise MislabelledError(
            f"{path} is {other}, not {level}",
            why="it would be measured under another level's name",
            remedy="correct the level, or the file that stands for it",
        )


def _converted(
    spec: ModelSpec, folder: Path, *, cache: Path, on_wait: Callable[[str], None] | None
) -> Path:
    # Variants are made from the one file that the model itself is converted to.
    maker = ModelMaker(replace(spec, name=spec.name.partition("+")[0]), cache, ".gguf", on_wait)
    recipe = {
        "converter": str(CONVERTER_VERSION),
        **{f"{name} sha256": _source_sha256(folder / name, cache) for name in HF_FILES},
    }
    return maker.made("F16", recipe, lambda path: hf_to_gguf(folder, path))


def _source_sha256(path: Path, cache: Path) -> str:
    try:
        return file_sha256(path, cache=cache)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}",
            remedy="give a folder in Hugging Face format, with its config, weights and tokenizer",
        ) from error


def without_source(spec: ModelSpec) -> ModelError:
    """The error for a specification that names nothing."""
    return ModelError(
        f"the model {spec.name!r} has no source",
        remedy="give it `hf`, `gguf` or `files`",
    )
