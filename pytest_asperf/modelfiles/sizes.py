"""The memory that a model needs, from a GGUF file's tensor list or a Hugging Face folder.

Nothing is converted or quantized for it. A quantization that a model does not have yet is estimated
from the shapes of its matrices and the bits per weight of that quantization in another model.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.capacity import Demand, kv_cache_bytes
from pytest_asperf.config.engines import MLX_ENGINES, mlx_scheme
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.errors import ModelError, printable
from pytest_asperf.modelfiles.gguf_header import TensorInfo
from pytest_asperf.modelfiles.gguf_read import GgufInfo, bytes_per_token, inspect_gguf, read_gguf
from pytest_asperf.modelfiles.hf_sizes import HfSizes, inspect_hf
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.levels import bits_stored, require_quantizable
from pytest_asperf.modelfiles.mlx_read import inspect_mlx
from pytest_asperf.modelfiles.resolve import published, published_file, without_source

#: llama.cpp's default where a front end states none.
_DEFAULT_CONTEXT: Final = 4096
_STATE: Final = re.compile(r"\.(ssm_|time_mix_|shortconv)")

#: Bits per weight of a file at each quantization. Sources: ggml's block sizes; for a mixture
#: llama.cpp, tools/quantize/README.md, Llama-3.1-8B; Q3_K_M from its published file of 4.02 GB.
BITS_PER_WEIGHT: Final[dict[str, float]] = {
    "F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5, "Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6,
    "TQ1_0": 1.6875, "TQ2_0": 2.0625, "MXFP4_MOE": 4.25, "NVFP4": 4.5, "Q1_0": 1.125, "Q2_0": 2.25,
    "IQ1_S": 2.0042, "IQ1_M": 2.1460, "IQ2_XXS": 2.3824, "IQ2_XS": 2.5882, "IQ2_S": 2.7403,
    "IQ2_M": 2.9294, "IQ3_XXS": 3.2548, "IQ3_XS": 3.4977, "IQ3_S": 3.6606, "IQ3_M": 3.7628,
    "IQ4_XS": 4.4597, "IQ4_NL": 4.6818, "Q2_K_S": 2.9697, "Q2_K": 3.1593, "Q3_K_S": 3.6429,
    "Q3_K_M": 4.00, "Q3_K_L": 4.2979, "Q4_K_S": 4.6672, "Q4_K_M": 4.8944, "Q5_K_S": 5.5704,
    "Q5_K_M": 5.7036, "Q6_K": 6.5633,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KvCache:
    """The KV cache to count; without a context, 4096 positions or the trained context if less."""

    context: int | None = None
    bytes_per_element: tuple[float, float] = (2.0, 2.0)
    #: of a weight that is not quantized, and of a group's scale, if the engine stores them in a
    #: compute type that differs from the file's, as MLX does
    float_bytes: float | None = None

    def positions(self, n_ctx_train: int | None) -> int:
        """The positions for a model."""
        return self.context or min(_DEFAULT_CONTEXT, n_ctx_train or _DEFAULT_CONTEXT)


def demand_of(ref: ModelRef, kv: KvCache) -> Demand:
    """The memory that a model needs at a quantization.

    Without a quantization it is that of its file as it is, and F16 of a Hugging Face folder.
    """
    spec, level = ref.spec, ref.level
    if spec.hf_folder is not None:
        return _of_folder(ref, inspect_hf(hf_source(spec, spec.hf_folder)), kv)
    if spec.gguf is None:
        info = inspect_gguf(published_file(ref))
        return _of_file(ref, info, kv, basis=f"tensor list of {info.path}")
    info = inspect_gguf(spec.gguf)
    if level is None or level == info.level:
        return _of_file(ref, info, kv, basis=f"tensor list of {info.path}")
    require_quantizable(info, level)
    return _of_file(ref, _at_level(info, level), kv, basis=_estimated(level, info.path))


def parameters_of(spec: ModelSpec) -> int | None:
    """The parameters of a model, read from headers; None of a variant and of a script."""
    path = spec.hf_folder or spec.gguf or next(iter(dict(spec.files).values()), None)
    if path is None or spec.variant is not None or spec.engine == "scripted":
        return None
    if path == spec.hf_folder:
        path = hf_source(spec, path)
    return (inspect_mlx(path) if path.is_dir() else inspect_gguf(path)).n_params


def encoder_of(ref: ModelRef) -> tuple[str, int] | None:
    """The kind of a GGUF file's encoder with its sign, and its context; None of other models."""
    path = _source_path(ref)
    info = None if path.is_dir() else read_gguf(path)
    return (info.encoder, info.n_ctx_train) if info and info.encoder else None


def trained_context(ref: ModelRef) -> int | None:
    """A model's training context in tokens, from the headers of its source.

    None if they do not show it, and for a script.
    """
    spec, path = ref.spec, _source_path(ref)
    if spec.engine == "scripted":
        return None
    if spec.engine not in MLX_ENGINES and path != spec.hf_folder and not path.is_dir():
        return inspect_gguf(path).n_ctx_train
    sizes = inspect_mlx(path).sizes
    return sizes.n_ctx_train if sizes else None


def _source_path(ref: ModelRef) -> Path:
    """The file or folder that a model is made of; ModelError if there is none."""
    spec = ref.spec
    if spec.files:
        path = published(ref)[1]
    elif spec.hf_folder is not None:
        path = hf_source(spec, spec.hf_folder)
    elif spec.gguf is not None:
        path = spec.gguf
    else:
        raise without_source(spec)
    if not path.exists():
        raise ModelError(
            f"{ref.label}: there is no file {printable(path)}",
            remedy="correct the path, or make the file",
        )
    return path


def bits_per_weight(level: str) -> float:
    """The bits per weight at a quantization, including its share of scales."""
    scheme = mlx_scheme(level)
    return BITS_PER_WEIGHT[level] if scheme is None else scheme.bits_per_weight


def _bits_held(level: str, float_bytes: float | None) -> float:
    """The bits per weight in memory, in an engine's compute type."""
    scheme = mlx_scheme(level)
    if float_bytes is None or (scheme is not None and scheme.mode != "affine"):
        return bits_per_weight(level)
    if scheme is None:
        return 8 * float_bytes
    return scheme.bits + 2 * 8 * float_bytes / scheme.group_size


def _of_file(ref: ModelRef, info: GgufInfo, kv: KvCache, *, basis: str) -> Demand:
    context = kv.positions(info.n_ctx_train)

    def read(depth: int) -> int:
        return bytes_per_token(info, depth=depth, kv_bytes_per_element=kv.bytes_per_element)

    return Demand(
        label=ref.label,
        basis=basis,
        context=context,
        weights_bytes=sum(tensor.nbytes for tensor in info.tensors),
        kv_bytes=kv_cache_bytes(info.kv_elements, context, kv.bytes_per_element),
        read_bytes=(read(0), read(context)),
        n_ctx_train=info.n_ctx_train,
        window=info.sliding_window,
        has_experts=info.n_experts > 0,
        is_recurrent=any(_STATE.search(tensor.name) for tensor in info.tensors),
        tokenizer_sha256=info.tokenizer_sha256,
        vocabulary=info.vocabulary,
    )


def _at_level(info: GgufInfo, level: str) -> GgufInfo:
    def resized(tensor: TensorInfo) -> TensorInfo:
        if len(tensor.shape) == 1:
            return tensor
        bits = bits_per_weight(bits_stored(level, tensor.shape[0]))
        return replace(tensor, nbytes=round(tensor.n_elements * bits / 8))

    return replace(info, tensors=tuple(map(resized, info.tensors)))


def _of_folder(ref: ModelRef, sizes: HfSizes, kv: KvCache) -> Demand:
    level = ref.level or "F16"
    if sizes.is_packed:
        raise ModelError(
            f"{sizes.folder} is quantized already",
            why="sizes at a quantization follow from the shapes of the original weights",
            remedy="give the folder of the original weights",
        )
    bits = _bits_held(level, kv.float_bytes)
    context = kv.positions(sizes.n_ctx_train)
    # Vectors stay in F32 at every llama.cpp quantization.
    vectors = sizes.vectors * (kv.float_bytes or 4)
    weights, read = (round(n * bits / 8 + vectors) for n in (sizes.matrices, sizes.read))
    seen = context if sizes.window is None else min(context, sizes.window)
    depth_bytes = kv_cache_bytes(sizes.kv_elements, seen, kv.bytes_per_element)
    return Demand(
        label=ref.label,
        basis=_estimated(level, sizes.folder),
        context=context,
        weights_bytes=weights,
        kv_bytes=kv_cache_bytes(sizes.kv_elements, context, kv.bytes_per_element),
        read_bytes=(read, read + depth_bytes),
        n_ctx_train=sizes.n_ctx_train,
        window=sizes.window,
        has_experts=sizes.has_experts,
        is_recurrent=sizes.is_recurrent,
    )


def _estimated(level: str, path: Path) -> str:
    source = "published average" if level in BITS_PER_WEIGHT else "own definition"
    bits = bits_per_weight(level)
    return f"estimated: shapes in {path} at {bits:g} bits per weight, {level}'s {source}"
