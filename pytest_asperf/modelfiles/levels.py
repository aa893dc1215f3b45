"""The quantizations that can be made from a GGUF file.

llama.cpp quantizes a tensor whose rows do not fit the level's blocks to another type, and says so
in a log only. A file called Q4_K_M that is half Q5_0 would be measured under the wrong name.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import UnfitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_asperf.modelfiles.gguf_header import TensorInfo
    from pytest_asperf.modelfiles.gguf_read import GgufInfo

_FLOAT_LEVELS: Final = frozenset({"F32", "F16", "BF16"})
_FLOAT_TYPES: Final = _FLOAT_LEVELS | {"F64", "I8", "I16", "I32", "I64"}
_BLOCKS_OF_32: Final = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"})

#: llama-quant.cpp, tensor_requires_imatrix: levels of which some tensor becomes such a type.
NEED_IMPORTANCE: Final = frozenset(
    {
        "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S",
    }
)  # fmt: skip

# llama-quant.cpp, tensor_allows_quantization: matrices that keep their type at every level.
_KEPT: Final = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj",
    "position_embd", "token_types", "ssm_conv1d", "shortconv.conv.weight", "time_mix_",
    "attn_rel_b.weight",
)  # fmt: skip

# llama-quant.cpp, llama_ftype_get_default_type: levels whose own type has another name.
_OWN_TYPES: Final = {
    "IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S",
}  # fmt: skip


def largest_type(info: GgufInfo) -> str:
    """The type that most bytes of a file's layers have, such as `Q4_K`."""
    return most_bytes(_layer_matrices(info))


def contradiction(info: GgufInfo, level: str) -> str:
    """The other level that a file is of, and what shows it; empty where nothing does.

    A level is a mixture around a type of its own. Where the metadata states the level, one matrix
    of that type will do, since publishers vary mixtures; where it does not, most of the layers
    have it. Only rows that fit the type's blocks count: llama.cpp gives others another type.
    """
    if info.level not in {None, level}:
        return f"{info.level} by its own metadata"
    own = _own_type(level)
    fitting = [
        tensor
        for tensor in _layer_matrices(info)
        if _is_quantised(tensor) and not tensor.shape[0] % _block(level)
    ]
    if not fitting or most_bytes(fitting) == own:
        return ""
    if info.level == level and any(tensor.type == own for tensor in fitting):
        return ""
    return f"{most_bytes(fitting)} by the types of its tensors"


def most_bytes(tensors: Iterable[TensorInfo]) -> str:
    """The type that most bytes of some tensors have."""
    held: Counter[str] = Counter()
    for tensor in tensors:
        held[tensor.type] += tensor.nbytes
    return held.most_common(1)[0][0]


def _own_type(level: str) -> str:
    """The type that a level's name stands for: Q4_K_M is a mixture around Q4_K."""
    base, _, size = level.rpartition("_")
    is_mixture = base.endswith("_K") and size in {"S", "M", "L"}
    return _OWN_TYPES.get(level, base if is_mixture else level)


def _layer_matrices(info: GgufInfo) -> list[TensorInfo]:
    """The matrices in a file's layers; embedding and output have types of their own."""
    matrices = [t for t in info.tensors if len(t.shape) > 1]
    return [t for t in matrices if t.name.startswith("blk.")] or matrices or list(info.tensors)


def require_quantizable(info: GgufInfo, level: str) -> None:
    """Refuse a level that a file cannot be quantized to, wholly."""
    quantised = next((t for t in info.tensors if t.type not in _FLOAT_TYPES), None)
    if quantised is not None:
        raise UnfitError(
            f"{info.path}: {level} cannot be made from it, it is {info.level or 'quantized'} "
            f"already ({quantised.name} is {quantised.type})",
            why="the result would carry the losses of both levels",
            remedy="give the model's F16, BF16 or F32 file as `gguf`, or the published file of "
            "each level under `files`",
        )
    if level in NEED_IMPORTANCE:
        raise UnfitError(
            f"{info.path}: {level} cannot be made without an importance matrix",
            why="llama.cpp refuses to quantize to so few bits without one",
            remedy="make the file with `llama-quantize --imatrix`, and give it under `files`",
        )
    block = _block(level)
    misfit = next((t for t in info.tensors if _is_quantised(t) and t.shape[0] % block), None)
    if misfit is not None:
        raise UnfitError(
            f"{info.path}: {misfit.name} cannot be {level}: its rows have {misfit.shape[0]} "
            f"elements, which is not a multiple of {block}",
            why="llama.cpp would store such tensors in another type under this level's name",
            remedy="use a level with blocks of 32, such as Q8_0 or Q4_0; to measure the mixture "
            "that llama-quantize makes of it, give that file under `files`",
        )


def _block(level: str) -> int:
    if level in _FLOAT_LEVELS:
        return 1
    return 32 if level in _BLOCKS_OF_32 else 256


def _is_quantised(tensor: TensorInfo) -> bool:
    is_weight = len(tensor.shape) > 1 and tensor.name.endswith("weight")
    return is_weight and not any(part in tensor.name for part in _KEPT)
