"""Variants of a model as GGUF files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from pytest_asperf.modelfiles.variants import Tensor, VariedModel, not_variable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_asperf.config.variants import Variant
    from pytest_asperf.modelfiles.gguf_read import GgufInfo

_ARCHITECTURES: Final = {"hybrid": "falcon-h1", "recurrent": "mamba"}
_ROTATED: Final = ("attn_q.weight", "attn_k.weight")


def require_variable(info: GgufInfo) -> None:
    """Raise ModelError for a file that is no dense Llama model in F16."""
    if info.architecture != "llama" or info.level != "F16" or info.n_experts:
        what = f"{info.architecture or 'unknown'} in {info.level or 'an unknown level'}"
        raise not_variable(info.path, what)


def write_variant(source: Path, dest: Path, variant: Variant) -> None:
    """Write a variant of a Llama model in F16."""
    reader = GGUFReader(source)
    varied = VariedModel(
        {t.name: np.array(t.data) for t in reader.tensors},
        variant,
        n_layers=_number(reader, "block_count"),
        n_embd=_number(reader, "embedding_length"),
    )
    architecture = _ARCHITECTURES.get(variant.kind, "llama")
    head_dim = _number(reader, "attention.key_length")
    writer = GGUFWriter(dest, architecture)
    _copy_fields(reader, writer, architecture)
    _add_fields(writer, varied)
    for tensor in varied.all_tensors():
        writer.add_tensor(*(_as_falcon(tensor, head_dim) if variant.kind == "hybrid" else tensor))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _number(reader: GGUFReader, key: str) -> int:
    field = reader.get_field(f"llama.{key}")
    if field is None:
        raise ValueError(f"no llama.{key}")
    return int(field.contents())


def _copy_fields(reader: GGUFReader, writer: GGUFWriter, architecture: str) -> None:
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in {"general.architecture", "llama.block_count"}:
            continue
        name = key.replace("llama.", f"{architecture}.", 1) if key.startswith("llama.") else key
        kind, *element = field.types
        contents = field.contents()
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(name, contents, kind, sub_type=element[0])
        else:
            writer.add_key_value(name, contents, kind)


def _add_fields(writer: GGUFWriter, varied: VariedModel) -> None:
    """Write what the variant has and the model has not, or has otherwise."""
    writer.add_block_count(varied.n_layers)
    if varied.variant.kind == "experts":
        writer.add_expert_count(varied.variant.n)
        writer.add_expert_used_count(1)
    sizes = varied.state_space
    if sizes is not None:
        writer.add_ssm_conv_kernel(sizes.d_conv)
        writer.add_ssm_state_size(sizes.d_state)
        writer.add_ssm_inner_size(sizes.d_inner)
        writer.add_ssm_time_step_rank(sizes.n_heads or sizes.dt_rank)
        if sizes.n_heads:
            writer.add_ssm_group_count(1)


def _as_falcon(tensor: Tensor, head_dim: int) -> Tensor:
    name, values = tensor
    if name.endswith(_ROTATED):
        return name, _halves(values, head_dim)
    if name.endswith("ffn_norm.weight"):
        return name.removesuffix(".weight"), values
    return tensor


def _halves(values: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Reorder rows of Q or K that rotate neighbours so that they rotate halves of a head."""
    rows, columns = values.shape
    pairs = values.reshape(rows // head_dim, head_dim // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
