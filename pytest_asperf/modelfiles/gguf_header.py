"""The header of a GGUF file, read strictly: no length or count is believed before it is checked.

Why not `gguf.GGUFReader`: it keeps several numpy objects for each vocabulary entry (150,000 tokens
and 300,000 merges, 2 busy cores: 18 s and 690 MB, against 0.2 s and 8 MB here), and it believes
counts (a 100-byte file with the header of an array of 2**32 strings kept it busy until it was
killed).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; limits as in its gguf.cpp.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from pytest_asperf.analysis.speculation_model import MOST_PADDING
from pytest_asperf.errors import ModelError, NoModelError, printable

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_SCALARS: Final = {
    code: struct.Struct("<" + letter)
    for code, letter in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip
_STRING: Final = 8
_ARRAY: Final = 9
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

# Far above every published model, low enough that hostile files cost 2 seconds and 50 MB at most.
_MAX_KEYS: Final = 1024
_MAX_TENSORS: Final = 65_536
_MAX_STRINGS: Final = 4_000_000
_MAX_KEY_BYTES: Final = 4096
_MAX_NAME_BYTES: Final = 63  # GGML_MAX_NAME - 1
_MAX_DIMS: Final = 4  # GGML_MAX_DIMS
_MAX_KEPT_TEXT: Final = 1024  # longer texts (chat templates) are skipped: nothing here needs them
_MAX_KEPT_NUMBERS: Final = 1024  # longer arrays of numbers (token scores) are skipped
_WINDOW_BYTES: Final = 1 << 20
_MAX_TYPE: Final = 4095

#: Up to 30 all forks agree; from here on bitnet.cpp, ik_llama.cpp and others have their own types.
_FIRST_DISPUTED: Final = 31
#: Types of llama.cpp that older packages `gguf` lack: name, elements and bytes of a block.
_NEWER_TYPES: Final = {
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip
_IK: Final = {
    133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN", 137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K",
    140: "IQ5_K", 141: "IQ6_K", 144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS", 152: "IQ5_KS",
    153: "IQ2_KT", 154: "IQ3_KT", 155: "IQ4_KT", 156: "IQ3_KS", 157: "IQ2_KL", 158: "IQ1_KT",
}  # fmt: skip
#: Types with their owner, where a number has one owner or two; a number without a name is unknown.
_FOREIGN_TYPES: Final = {
    **dict(enumerate((f"{name}, which it removed" for name in ("Q4_2", "Q4_3")), 4)),
    **dict(enumerate((f"Q4_0_{of}, which it removed" for of in ("4_4", "4_8", "8_8")), 31)),
    36: "I2_S of bitnet.cpp, or IQ4_NL_4_4, which it removed",
    37: "I8_S of bitnet.cpp, or IQ4_NL_4_8, which it removed",
    38: "TL1 of bitnet.cpp, or IQ4_NL_8_8, which it removed",
    **{code: f"{name} of ik_llama.cpp" for code, name in _IK.items()},
    **{n + 200: f"{_IK[n]}_R4 of ik_llama.cpp" for n in (135, 137, 138, 139, 140, 144, 152)},
}


@dataclass(frozen=True, slots=True)
class StringArray:
    """An array of strings that was walked but not kept.

    The digest is the sha256 over the array as stored: its count (u64), then each string's length
    (u64) and bytes, little-endian.
    """

    count: int
    digest: bytes
    #: digests without the count, of all strings but the last `MOST_PADDING`, and of one more each,
    #: up to all of them
    ends: tuple[bytes, ...] = ()


Value = int | float | bool | str | tuple[int | float, ...] | StringArray | None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file; its shape is in ggml's order, the length of a row first."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def n_elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The part of a file before its weights."""

    #: metadata by key; None is a value that is well-formed but was not kept
    values: dict[str, Value]
    tensors: tuple[TensorInfo, ...]
    data_start: int  #: where the first tensor's data begins, in bytes


def corrupt(path: Path, reason: str) -> ModelError:
    """The error for a file whose content contradicts itself or the format."""
    return ModelError(
        f"{path}: {reason}",
        why="a file that is damaged here may be damaged in its weights, and would measure noise",
        remedy="get or make the file again, and compare its SHA-256 with the publisher's",
    )


def truncated(path: Path, reason: str) -> ModelError:
    """The error for a file that ends too early."""
    return ModelError(
        f"{path} is truncated: {reason}",
        why="the missing weights would be read as garbage, or crash the engine",
        remedy="an interrupted download or copy does this: get the file again, check its size",
    )


def read_header(file: BinaryIO, *, size: int, path: Path) -> GgufHeader:
    """Read an open GGUF file's header, and check that all tensors' data lies inside the file."""
    cursor = _Cursor(file, size=size, path=path)
    cursor.skip(len(_MAGIC))
    _check_version(cursor)
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    if n_keys > _MAX_KEYS:
        cursor.fail(f"its header counts {n_keys:,} metadata keys")
    if n_tensors > _MAX_TENSORS:
        cursor.fail(f"its header counts {n_tensors:,} tensors")
    values = _read_values(cursor, n_keys)
    alignment = _alignment(cursor, values)
    tensors = _read_tensors(cursor, n_tensors, alignment=alignment)
    data_start = _padded(cursor.position, alignment)
    return GgufHeader(values, tensors, data_start)


class _Cursor:
    """A position in the file, with a window of bytes behind it; never reads past a check."""

    def __init__(self, file: BinaryIO, *, size: int, path: Path) -> None:
        self._file = file
        self._window = b""
        self._window_start = 0
        self._strings_left = _MAX_STRINGS
        self.path = path
        self.size = size
        self.position = 0

    def fail(self, reason: str) -> NoReturn:
        raise corrupt(self.path, f"corrupt GGUF header at byte {self.position:,}: {reason}")

    def _require(self, n_bytes: int) -> None:
        if n_bytes > self.size - self.position:
            raise truncated(
                self.path,
                f"its header needs {n_bytes:,} bytes at {self.position:,}, "
                f"and the file has {self.size:,}",
            )

    def _ahead(self, n_bytes: int) -> tuple[bytes, int]:
        """The window, and the offset in it of the next `n_bytes` (fewer at the end)."""
        offset = self.position - self._window_start
        if offset + n_bytes > len(self._window):
            self._file.seek(self.position)
            self._window = self._file.read(_WINDOW_BYTES)
            self._window_start, offset = self.position, 0
        return self._window, offset

    def skip(self, n_bytes: int) -> None:
        self._require(n_bytes)
        self.position += n_bytes

    def take(self, n_bytes: int) -> bytes:
        self._require(n_bytes)
        window, offset = self._ahead(n_bytes)
        taken = window[offset : offset + n_bytes]
        if len(taken) < n_bytes:
            raise truncated(self.path, f"it ended at byte {self.position:,} while being read")
        self.position += n_bytes
        return taken

    def number(self, kind: struct.Struct) -> int | float | bool:
        value: int | float | bool = kind.unpack(self.take(kind.size))[0]
        return value

    def u32(self) -> int:
        return int(self.number(_U32))

    def u64(self) -> int:
        return int(self.number(_U64))

    def text(self, *, what: str, at_most: int) -> str:
        length = self.u64()
        if length > at_most:
            self.fail(f"{what} of {length:,} bytes, more than the {at_most:,} allowed")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not valid UTF-8")

    def strings(self) -> StringArray:
        """Walk an array of strings at its count, hashing it as it is stored."""
        head = self.take(_U64.size)
        count = left = int(_U64.unpack(head)[0])
        if count > self._strings_left:
            self.fail(f"an array of {count:,} strings")
        self._strings_left -= count
        digest, plain = hashlib.sha256(head), hashlib.sha256()
        ends = []
        while left:
            taken, walked = self._whole_strings(max(1, left - MOST_PADDING))
            digest.update(taken)
            plain.update(taken)
            self.position += len(taken)
            left -= walked
            if left <= MOST_PADDING:
                ends.append(plain.digest())
        return StringArray(count, digest.digest(), tuple(ends))

    def _whole_strings(self, at_most: int) -> tuple[memoryview, int]:
        """The next strings as stored, as many as the window has, and their number."""
        for n_bytes in (1, _WINDOW_BYTES):
            window, start = self._ahead(n_bytes)
            end, walked = _walk_strings(window, start, at_most)
            if walked:
                return memoryview(window)[start:end], walked
        return self._refuse_string()

    def _refuse_string(self) -> NoReturn:
        length = self.u64()
        self._require(length)
        self.fail(f"a string of {length:,} bytes inside an array")


def _walk_strings(window: bytes, start: int, at_most: int) -> tuple[int, int]:
    """The end of the window's last whole string, and the number of strings before it."""
    unpack, size = _U64.unpack_from, len(window)
    position, walked = start, 0
    while walked < at_most and position + 8 <= size:
        end = position + 8 + unpack(window, position)[0]
        if end > size:
            break
        position, walked = end, walked + 1
    return position, walked


def _check_version(cursor: _Cursor) -> None:
    version = cursor.u32()
    if version and version & 0xFFFF == 0:
        raise ModelError(
            f"{cursor.path} is a big-endian GGUF file",
            why="its numbers would be read backwards on this machine",
            remedy="convert it with `gguf-convert-endian FILE little`",
        )
    if version not in _VERSIONS:
        raise ModelError(
            f"{cursor.path} is GGUF version {version}; versions 2 and 3 can be read",
            why="other versions lay out their header differently",
            remedy="convert the model again with a current llama.cpp",
        )


def _read_values(cursor: _Cursor, count: int) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.text(what="a metadata key", at_most=_MAX_KEY_BYTES)
        if not key or key in values:
            cursor.fail("an empty or repeated metadata key")
        values[key] = _read_value(cursor)
    return values


def _read_value(cursor: _Cursor) -> Value:
    code = cursor.u32()
    if code == _ARRAY:
        return _read_array(cursor)
    if code == _STRING:
        return _read_string(cursor)
    if code not in _SCALARS:
        cursor.fail(f"unknown value type {code}")
    return cursor.number(_SCALARS[code])


def _read_string(cursor: _Cursor) -> str | None:
    start = cursor.position
    length = cursor.u64()
    if length > _MAX_KEPT_TEXT:
        cursor.skip(length)
        return None
    cursor.position = start
    return cursor.text(what="a metadata text", at_most=_MAX_KEPT_TEXT)


def _read_array(cursor: _Cursor) -> Value:
    code = cursor.u32()
    if code == _STRING:
        return cursor.strings()
    if code not in _SCALARS:
        cursor.fail(f"an array of unknown type {code}")
    kind, count = _SCALARS[code], cursor.u64()
    if count > _MAX_KEPT_NUMBERS:
        cursor.skip(count * kind.size)
        return None
    return tuple(kind.unpack(cursor.take(kind.size))[0] for _ in range(count))


def _alignment(cursor: _Cursor, values: dict[str, Value]) -> int:
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
    return alignment


def _read_tensors(cursor: _Cursor, count: int, *, alignment: int) -> tuple[TensorInfo, ...]:
    placed = [_read_tensor(cursor) for _ in range(count)]
    ends: dict[str, int] = {}
    end_of_data = 0
    for at, (tensor, offset) in enumerate(placed):
        if tensor.name in ends:
            cursor.fail(f"two tensors named {tensor.name!r}")
        expected = _padded(end_of_data, alignment)
        if offset != expected:
            if at and _never_fits(placed, placed[at - 1][0].type, alignment):
                raise _foreign(cursor.path, placed[at - 1][0])
            cursor.fail(f"tensor {tensor.name!r} at offset {offset:,} instead of {expected:,}")
        end_of_data = ends[tensor.name] = offset + tensor.nbytes
    data_start = _padded(cursor.position, alignment)
    if cut_off := [name for name, end in ends.items() if data_start + end > cursor.size]:
        raise truncated(
            cursor.path,
            f"its tensors need {data_start + end_of_data:,} bytes and it has {cursor.size:,}; "
            f"{cut_off[0]!r} is the first one cut off",
        )
    return tuple(tensor for tensor, _ in placed)


def _never_fits(placed: list[tuple[TensorInfo, int]], kind: str, alignment: int) -> bool:
    """True if a type's number is in dispute, and no tensor of it ends where the next begins."""
    follow = [(t, at, after) for (t, at), (_, after) in pairwise(placed) if t.type == kind]
    return kind in _disputed() and all(
        at < after != _padded(at + tensor.nbytes, alignment) for tensor, at, after in follow
    )


def _read_tensor(cursor: _Cursor) -> tuple[TensorInfo, int]:
    """A tensor, and where its data begins after the header."""
    name = cursor.text(what="a tensor name", at_most=_MAX_NAME_BYTES)
    n_dims = cursor.u32()
    if not 1 <= n_dims <= _MAX_DIMS:
        cursor.fail(f"tensor {name!r} with {n_dims:,} dimensions")
    shape = tuple(cursor.u64() for _ in range(n_dims))
    code = cursor.u32()
    if code > _MAX_TYPE:
        cursor.fail(f"tensor {name!r} of type {code:,}")
    type_name, block, block_bytes = _tensor_types().get(code) or _refuse_type(cursor, name, code)
    tensor = TensorInfo(name, type_name, shape, math.prod(shape) // block * block_bytes)
    if math.prod(shape) < 1 << 63 and all(shape) and shape[0] % block and type_name in _disputed():
        raise _foreign(cursor.path, tensor)
    if math.prod(shape) >= 1 << 63 or not all(shape) or shape[0] % block:
        cursor.fail(f"tensor {name!r} of type {type_name} with the shape {list(shape)}")
    return tensor, cursor.u64()


def _refuse_type(cursor: _Cursor, name: str, code: int) -> NoReturn:
    of_whom = _FOREIGN_TYPES.get(code)
    known = f"llama.cpp does not have: {of_whom}" if of_whom else "is unknown here"
    raise NoModelError(
        f"{cursor.path}: tensor {printable(name, 100)!r} is of type {code}, which {known}",
        why="a fork such as ik_llama.cpp has types of its own, and a newer llama.cpp more",
        remedy="get a file of a type of llama.cpp; if the type is new: `pip install -U gguf`",
    )


def _foreign(path: Path, tensor: TensorInfo) -> NoModelError:
    """The error for a type whose number means another type here than in the file."""
    code = next(code for code, (name, *_) in _tensor_types().items() if name == tensor.type)
    return NoModelError(
        f"{path}: tensor {printable(tensor.name, 100)!r} is of type {code}, and no such tensor of "
        f"the file has the size of llama.cpp's {tensor.type}",
        why="forks give this number to other types",
        remedy="get a file of a type of llama.cpp, or measure it with its fork's "
        "llama-bench and read the output with `asperf audit`",
    )


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment


@cache
def _tensor_types() -> dict[int, tuple[str, int, int]]:
    """Each ggml type's name, elements per block and bytes per block, by its number."""
    from gguf.constants import GGML_QUANT_SIZES  # noqa: PLC0415  # brings numpy along

    return _NEWER_TYPES | {int(kind): (kind.name, *of) for kind, of in GGML_QUANT_SIZES.items()}


@cache
def _disputed() -> frozenset[str]:
    """Types whose number some fork gave to another type."""
    return frozenset(
        name for code, (name, *_) in _tensor_types().items() if code >= _FIRST_DISPUTED
    )
