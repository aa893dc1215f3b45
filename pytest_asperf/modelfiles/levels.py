"""The quantizations that can be made from a GGUF file, and those that a file is of.

A tensor whose rows are no multiple of a type's block gets another type, which llama.cpp names in a
log only: Q4_K_M of a model with rows of 576 elements is mostly Q5_0. People download it under that
name, so it is made and measured, and the run record names the types.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pytest_asperf.config.engines import PUBLISHED_FTYPES
from pytest_asperf.errors import UnfitError
from pytest_asperf.modelfiles.gguf_header import TensorInfo
from pytest_asperf.modelfiles.gguf_read import GgufInfo

_FLOAT_LEVELS: Final = frozenset({"F32", "F16", "BF16"})
_FLOAT_TYPES: Final = _FLOAT_LEVELS | {"F64", "I8", "I16", "I32", "I64"}
_SMALL_BLOCK: Final = 32
#: Elements of a block; 256 if it is not here.
_BLOCKS: Final = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "MXFP4_MOE"), 32),
    "NVFP4": 64, "Q2_0": 64, "Q1_0": 128,
}  # fmt: skip

#: llama-quant.cpp, tensor_requires_imatrix: quantizations with a tensor of such a type.
NEED_IMPORTANCE: Final = frozenset(
    {
        "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S",
    }
)  # fmt: skip

# llama-quant.cpp, tensor_allows_quantization: matrices that keep their type at every quantization.
_KEPT: Final = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj",
    "position_embd", "token_types", "ssm_conv1d", "shortconv.conv.weight", "time_mix_",
    "attn_rel_b.weight",
)  # fmt: skip

# llama-quant.cpp, llama_ftype_get_default_type: quantizations whose own type has another name.
_OWN_TYPES: Final = {
    "IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S",
    "MXFP4_MOE": "MXFP4",
}  # fmt: skip


# llama-quant.cpp, tensor_type_fallback, and the choice of other releases; of IQ types IQ4_NL.
_FALLBACKS: Final = {
    "Q2_K": ("Q4_0", "IQ4_NL"), "Q3_K": ("Q4_0", "IQ4_NL"), "Q4_K": ("Q5_0",), "Q5_K": ("Q5_1",),
    "Q6_K": ("Q8_0",), "TQ1_0": ("Q4_0",), "TQ2_0": ("Q4_0",),
}  # fmt: skip
_FALLBACK: Final = ("IQ4_NL",)


def largest_type(info: GgufInfo) -> str:
    """The type that most bytes of a file's layers have, such as `Q4_K`."""
    return most_bytes(_layer_matrices(info))


def contradiction(info: GgufInfo, level: str) -> str:
    """The file's other quantization, and the evidence for it; empty without evidence.

    A quantization is a mixture around a type of its own, or around llama.cpp's replacement for rows
    that do not fit its blocks. If the metadata states the quantization, one matrix of that type is
    enough, since publishers vary mixtures; otherwise most of the layers have it.
    """
    if info.level not in {None, level}:
        return f"{info.level} by its own metadata"
    own = _own_type(level)
    expected: list[TensorInfo] = []
    others: list[TensorInfo] = []
    for tensor in filter(_is_quantised, _layer_matrices(info)):
        is_expected = tensor.type in stored_as(own, tensor.shape[0])
        (expected if is_expected else others).append(tensor)
    if not others or (info.level == level and expected):
        return ""
    if sum(t.nbytes for t in expected) >= _most_of_a_type(others):
        return ""
    return f"{most_bytes(others)} by the types of its tensors"


def stored_as(own: str, row: int) -> tuple[str, ...]:
    """The replacement types for rows of this many elements, the likeliest first."""
    if not row % _block(own):
        return (own,)
    return ("F16",) if row % _SMALL_BLOCK else _FALLBACKS.get(own, _FALLBACK)


def bits_stored(level: str, row: int) -> str:
    """The quantization whose bits per weight a tensor with such rows has."""
    own = _own_type(level)
    return level if not row % _block(own) else stored_as(own, row)[0]


def fallback_text(info: GgufInfo) -> str:
    """The types of the matrices whose rows do not fit the file's quantization; empty if all fit."""
    matrices = [t for t in _layer_matrices(info) if _is_quantised(t)]
    own = _own_type(info.level) if info.level else ""
    misfits = [t for t in matrices if own and t.shape[0] % _block(own)]
    if not misfits:
        return ""
    share = sum(t.nbytes for t in misfits) / sum(t.nbytes for t in matrices)
    types = ", ".join(sorted({t.type for t in misfits}))
    return f"{types} in {share:.0%} of the layers' bytes, as their rows do not fit {own}"


def most_bytes(tensors: Iterable[TensorInfo]) -> str:
    """The type that most bytes of some tensors have."""
    held: Counter[str] = Counter()
    for tensor in tensors:
        held[tensor.type] += tensor.nbytes
    return held.most_common(1)[0][0]


def _most_of_a_type(tensors: list[TensorInfo]) -> int:
    """The bytes of the most frequent type of some tensors."""
    largest = most_bytes(tensors) if tensors else ""
    return sum(tensor.nbytes for tensor in tensors if tensor.type == largest)


def _own_type(level: str) -> str:
    """The main type of a quantization's name: Q4_K_M is a mixture around Q4_K."""
    base, _, size = level.rpartition("_")
    is_mixture = base.endswith("_K") and size in {"S", "M", "L"}
    return _OWN_TYPES.get(level, base if is_mixture else level)


def _layer_matrices(info: GgufInfo) -> list[TensorInfo]:
    """The matrices in a file's layers; embedding and output have types of their own."""
    matrices = [t for t in info.tensors if len(t.shape) > 1]
    return [t for t in matrices if t.name.startswith("blk.")] or matrices or list(info.tensors)


def require_quantizable(info: GgufInfo, level: str) -> None:
    """Reject a quantization that a file cannot be converted to."""
    quantised = next((t for t in info.tensors if t.type not in _FLOAT_TYPES), None)
    if quantised is not None:
        raise UnfitError(
            f"{info.path}: {level} cannot be made from it, it is {info.level or 'quantized'} "
            f"already ({quantised.name} is {quantised.type})",
            why="the result would have the losses of both quantizations",
            remedy="give the model's F16, BF16 or F32 file as `gguf`, or the published file of "
            "each quantization under `files`",
        )
    if level in PUBLISHED_FTYPES:
        raise UnfitError(
            f"{info.path}: asperf does not make {level}",
            why="its weights are trained or calibrated for it, not rounded to it",
            remedy="give the published file under `files`",
        )
    if level in NEED_IMPORTANCE:
        raise UnfitError(
            f"{info.path}: {level} cannot be made without an importance matrix",
            why="llama.cpp does not quantize to so few bits without one",
            remedy="make the file with `llama-quantize --imatrix`, and give it under `files`",
        )
    matrices = [t for t in info.tensors if _is_quantised(t)]
    if _block(level) > 1 and matrices and all(t.shape[0] % _SMALL_BLOCK for t in matrices):
        raise UnfitError(
            f"{info.path}: {matrices[0].name} cannot be {level}: its rows have "
            f"{matrices[0].shape[0]} elements, which is not a multiple of {_SMALL_BLOCK}",
            why="llama.cpp would store every tensor as F16 under this name",
            remedy="measure the model in F16",
        )


def _block(kind: str) -> int:
    """The elements in a block of a quantization, or of a type."""
    if kind in _FLOAT_LEVELS:
        return 1
    return _BLOCKS.get(kind, 256)


def _is_quantised(tensor: TensorInfo) -> bool:
    is_weight = len(tensor.shape) > 1 and tensor.name.endswith("weight")
    return is_weight and not any(part in tensor.name for part in _KEPT)
