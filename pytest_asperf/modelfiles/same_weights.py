"""True if two models are the same weights, whatever their files are called and say beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engines import FLOAT_LEVELS
from pytest_asperf.modelfiles.gguf_read import GgufInfo, gguf_parts
from pytest_asperf.modelfiles.levels import largest_type
from pytest_asperf.modelfiles.mlx_read import MlxInfo, weight_files
from pytest_asperf.modelfiles.safetensors_read import data_start

if TYPE_CHECKING:
    from pathlib import Path

Info = GgufInfo | MlxInfo | None

_BLOCK_BYTES: Final = 1 << 20


def same_tensors(one: Info, other: Info) -> bool:
    """True if two files, or folders, hold the same tensors, read only where their shapes agree."""
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
