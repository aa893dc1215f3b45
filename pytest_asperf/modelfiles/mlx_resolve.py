"""From a model's address to the folder that MLX measures: given, published or converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engines import mlx_scheme
from pytest_asperf.errors import MislabelledError, UnfitError
from pytest_asperf.modelfiles.cache import folder_sha256
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.maker import ModelMaker, Quantize
from pytest_asperf.modelfiles.mlx_read import (
    MlxInfo,
    hashed_files,
    inspect_mlx,
    shown_level,
    unquantised_misfit,
)
from pytest_asperf.modelfiles.resolve import published, without_source
from pytest_asperf.modelfiles.variant_folders import require_variable_folder, write_variant_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.config.spec import ModelRef


#: Part of the key of every folder made here: raise it when the same input gives another folder.
_MAKER_VERSION: Final = 1


def resolve_mlx(
    ref: ModelRef,
    *,
    cache: Path,
    quantize: Quantize,
    quantizer_id: Callable[[], str],
    on_wait: Callable[[str], None] | None = None,
) -> MlxInfo:
    """The folder of a model at a level, or as it is, made if need be.

    `quantize` and `quantizer_id`, the converter's build, are called only to make a level, and
    `on_wait` once, when another process is making the folder.

    Raises:
        ModelError: the source is missing or broken, or the level cannot be made from it.
        CacheError: the cache folder cannot be used.
    """
    spec, level = ref.spec, ref.level
    if spec.files and spec.variant is None:
        level, path = published(ref)
        info = inspect_mlx(path)
        _require_level(info, level)
        return info
    if spec.hf_folder is None:
        if spec.gguf is not None:
            return inspect_mlx(spec.gguf)
        raise without_source(spec)
    source = inspect_mlx(hf_source(spec, spec.hf_folder))
    maker = ModelMaker(spec, cache, ".mlx", on_wait)
    if spec.variant is not None:
        require_variable_folder(source)
        sha256 = folder_sha256(hashed_files(source.path), cache=cache)
        path = maker.variant(spec.variant, source.path, sha256, write_variant_folder)
        source = inspect_mlx(path)
    if level is None or level == source.level:
        return source
    if source.is_quantised:
        raise UnfitError(
            f"{source.path}: {level} cannot be made from it, it is {shown_level(source)} already",
            why="the result would carry the losses of both levels",
            remedy="give the folder of the original weights as `hf`, or the published folder of "
            "each level under `files`",
        )
    recipe = {
        "source_sha256": folder_sha256(hashed_files(source.path), cache=cache),
        "quantizer": quantizer_id(),
        "maker": str(_MAKER_VERSION),
    }

    _require_whole(source, level)

    def build(target: Path) -> None:
        quantize(source.path, target, level)
        _require_level(inspect_mlx(target), level)

    return inspect_mlx(maker.made(level, recipe, build))


def _require_level(info: MlxInfo, level: str) -> None:
    if info.level != level:
        raise MislabelledError(
            f"{info.path} is {shown_level(info)} by its own configuration, not {level}",
            why="it would be measured under another level's name",
            remedy="correct the level, or the folder that stands for it",
        )


def _require_whole(source: MlxInfo, level: str) -> None:
    """Refuse a level that some matrices cannot have: mlx-lm leaves what does not fit as it is."""
    scheme = mlx_scheme(level)
    misfit = unquantised_misfit(source, scheme.group_size) if scheme else None
    if scheme is not None and misfit is not None:
        raise UnfitError(
            f"{source.path}: {misfit.name} cannot be {level}: its rows have {misfit.shape[-1]} "
            f"elements, which is not a multiple of {scheme.group_size}",
            why="mlx-lm would leave such tensors unquantised under this level's name",
            remedy=f"use a group size that divides {misfit.shape[-1]}, such as 32 or 64",
        )
