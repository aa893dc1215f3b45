"""A safetensors file as numpy arrays, checked before it is believed.

The `safetensors` package cannot give bfloat16 to numpy without a third package, and reads a tensor
into memory where this maps it. Format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.gguf_header import corrupt, truncated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file, mapped and not yet read.

    Attributes:
        name: its name.
        shape: rows first, as numpy has it.
    """

    name: str
    shape: tuple[int, ...]
    _dtype: str
    _raw: NDArray[Any]

    def as_float32(self) -> NDArray[np.float32]:
        """Return the elements, widened to float32."""
        if self._dtype == "BF16":
            return (self._raw.astype("<u4") << 16).view("<f4").reshape(self.shape)
        return self._raw.astype(np.float32).reshape(self.shape)


def read_safetensors(path: Path) -> Mapping[str, StoredTensor]:
    """Open a safetensors file of F32, F16 or BF16 tensors.

    Raises:
        ModelError: the file is missing, truncated, corrupt, or holds another type.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_MAX_HEADER_BYTES, size - 8):
                raise truncated(path, f"its header claims {length:,} bytes of its {size:,}")
            header = _parse(path, file.read(length))
        data = np.memmap(path, dtype=np.uint8, mode="r")[8 + length :]
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}",
            why="the model's weights are in it",
            remedy="give a folder in Hugging Face format with one model.safetensors",
        ) from error
    tensors = {name: _tensor(path, name, entry, data) for name, entry in header.items()}
    _refuse_overlap(path, header, len(data))
    return tensors


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, "its safetensors header is not JSON") from error
    if not isinstance(header, dict):
        raise corrupt(path, "its safetensors header is not a table")
    header.pop("__metadata__", None)
    return header


def _tensor(path: Path, name: str, entry: object, data: NDArray[np.uint8]) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise corrupt(path, f"tensor {name[:100]!r} is not described as one")
    if not all(type(n) is int and n > 0 for n in shape):
        raise corrupt(path, f"tensor {name[:100]!r} has the shape {str(shape)[:60]}")
    if dtype not in _DTYPES:
        raise ModelError(
            f"{path}: tensor {name[:100]!r} is of type {dtype[:20]!r}",
            why="only plain floating-point weights can be made into an F16 file",
            remedy=f"save the model in one of {', '.join(_DTYPES)}",
        )
    if not 0 <= begin <= end or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise corrupt(path, f"tensor {name[:100]!r} has {end - begin} bytes for {str(shape)[:60]}")
    if end > len(data):
        raise truncated(path, f"tensor {name[:100]!r} ends {end - len(data):,} bytes after it")
    raw = data[begin:end].view(_DTYPES[dtype])
    return StoredTensor(name=name, shape=tuple(shape), _dtype=dtype, _raw=raw)


def _refuse_overlap(path: Path, header: Mapping[str, Any], size: int) -> None:
    position = 0
    for begin, end in sorted(entry["data_offsets"] for entry in header.values()):
        if begin != position:
            raise corrupt(path, f"its tensors overlap or leave a gap at byte {position:,}")
        position = end
    if position != size:
        raise corrupt(path, f"{size - position:,} bytes follow its last tensor")
