"""A safetensors file as numpy arrays, checked before it is believed.

The `safetensors` package cannot give bfloat16 to numpy without a third package, and reads a tensor
into memory where this maps it. Format: https://github.com/huggingface/safetensors#format.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.gguf_header import TensorInfo, corrupt, truncated

_MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_ITEM_BYTES: Final = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


@dataclass(frozen=True, slots=True)
class TensorEntry(TensorInfo):
    """One tensor as a header states it, its shape rows first; `begin` counts from the header."""

    begin: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file, mapped and not yet read; the shape has rows first."""

    shape: tuple[int, ...]
    _dtype: str
    _raw: NDArray[Any]

    def as_float32(self) -> NDArray[np.float32]:
        """The elements, widened to float32."""
        if self._dtype == "BF16":
            return (self._raw.astype("<u4") << 16).view("<f4").reshape(self.shape)
        return self._raw.astype(np.float32).reshape(self.shape)


def read_safetensors(path: Path) -> Mapping[str, StoredTensor]:
    """Open a safetensors file of F32, F16 or BF16 tensors."""
    entries, start = _read_header(path)
    for entry in entries:
        if entry.type not in _DTYPES:
            raise ModelError(
                f"{path}: tensor {entry.name[:100]!r} is of type {entry.type[:20]!r}",
                why="only plain floating-point weights can be made into an F16 file",
                remedy=f"save the model in one of {', '.join(_DTYPES)}",
            )
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")[start:]
    except OSError as error:
        raise _unreadable(path, error) from error
    return {
        entry.name: StoredTensor(
            entry.shape,
            entry.type,
            data[entry.begin : entry.begin + entry.nbytes].view(_DTYPES[entry.type]),
        )
        for entry in entries
    }


def list_tensors(path: Path) -> tuple[TensorEntry, ...]:
    """The tensors of a safetensors file, of any type; the weights are not read."""
    return _read_header(path)[0]


def data_start(path: Path) -> int:
    """The offset of the first tensor's bytes in a safetensors file."""
    return _read_header(path)[1]


def _read_header(path: Path) -> tuple[tuple[TensorEntry, ...], int]:
    """The tensors, and where the first one's bytes begin."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_MAX_HEADER_BYTES, size - 8):
                raise truncated(path, f"its header counts {length:,} bytes of its {size:,}")
            header = _parse(path, file.read(length))
    except OSError as error:
        raise _unreadable(path, error) from error
    room = size - 8 - length
    entries = tuple(_entry(path, name, entry, room) for name, entry in header.items())
    _refuse_overlap(path, entries, room)
    return entries, 8 + length


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError(
        f"{path} cannot be read: {error.strerror}",
        remedy="give a folder in Hugging Face format with one model.safetensors",
    )


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, "its safetensors header is not JSON") from error
    if not isinstance(header, dict):
        raise corrupt(path, "its safetensors header is not a table")
    header.pop("__metadata__", None)
    return header


def _entry(path: Path, name: str, entry: object, room: int) -> TensorEntry:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise corrupt(path, f"tensor {name[:100]!r} is not described as one")
    if not all(type(n) is int and n > 0 for n in shape):
        raise corrupt(path, f"tensor {name[:100]!r} has the shape {str(shape)[:60]}")
    # The bytes of an unknown type cannot be checked; readers of its tensors raise.
    expected = math.prod(shape) * _ITEM_BYTES[dtype] if dtype in _ITEM_BYTES else end - begin
    if not 0 <= begin <= end or end - begin != expected:
        raise corrupt(path, f"tensor {name[:100]!r} has {end - begin} bytes for {str(shape)[:60]}")
    if end > room:
        raise truncated(path, f"tensor {name[:100]!r} ends {end - room:,} bytes after it")
    return TensorEntry(name, dtype, tuple(shape), end - begin, begin)


def _refuse_overlap(path: Path, entries: Sequence[TensorEntry], size: int) -> None:
    position = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.nbytes)):
        if entry.begin != position:
            raise corrupt(path, f"its tensors overlap or leave a gap at byte {position:,}")
        position += entry.nbytes
    if position != size:
        raise corrupt(path, f"{size - position:,} bytes follow its last tensor")
