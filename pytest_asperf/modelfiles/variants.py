"""Variants of a Llama model in F16: the same function at another cost, or on another memory.

With them one pair of models covers regimes that would take many: acceptance stays what it is, as
the logits do, while what a step costs, or how it is rolled back, is a dial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from pytest_asperf.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_asperf.modelfiles.gguf_read import GgufInfo
    from pytest_asperf.spec import Variant

#: Part of the key of every file made here: raise it when the same input gives other bytes.
VARIANTS_VERSION: Final = 1

Tensor = tuple[str, "NDArray[Any]"]

_ZEROED: Final = ("attn_output.weight", "ffn_down.weight")
_ROTATED: Final = ("attn_q.weight", "attn_k.weight")

# Sizes of the state-space parts: as small as the architectures admit.
_D_CONV: Final = 4
_D_STATE: Final = 16
_D_INNER: Final = 64
_N_SSM_HEADS: Final = 2
_DT_RANK: Final = 16


def require_variable(info: GgufInfo) -> None:
    """Check that variants can be made of a file.

    Raises:
        ModelError: it is no Llama model in F16, or its output head is its own.
    """
    if info.architecture == "llama" and info.level == "F16" and not info.n_experts:
        return
    raise ModelError(
        f"{info.path}: variants are made of dense Llama models in F16, this is "
        f"{info.architecture or 'unknown'} in {info.level or 'an unknown level'}",
        why="a variant must have the same logits, which is known for these only",
        remedy="use a shipped model, such as asperf-target+layers=8",
    )


def write_variant(source: Path, dest: Path, variant: Variant) -> None:
    """Write a variant of a Llama model in F16.

    Args:
        source: the model.
        dest: the file to write.
        variant: `layers`, n more layers whose output projections are zero; `experts`, n copies of
            each feed-forward part of which a router of random weights takes one for each token;
            `hybrid`, a Falcon-H1 with the model's attention and a state-space part whose output is
            zero; `recurrent`, a Mamba of n layers and random weights on the model's embedding.
            All but the last have the model's logits.

    Raises:
        OSError: `dest` cannot be written.
    """
    reader = GGUFReader(source)
    tensors = {t.name: np.array(t.data) for t in reader.tensors}
    made = _Made(reader, tensors, variant)
    writer = GGUFWriter(dest, made.architecture)
    _copy_fields(reader, writer, made.architecture)
    made.add_fields(writer)
    for name, values in made.all_tensors():
        writer.add_tensor(name, values)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


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


class _Made:
    """What a variant consists of."""

    def __init__(
        self, reader: GGUFReader, tensors: dict[str, NDArray[Any]], variant: Variant
    ) -> None:
        self._tensors = tensors
        self._variant = variant
        self._n_layers = self._number(reader, "block_count")
        self._n_embd = self._number(reader, "embedding_length")
        self._head_dim = self._number(reader, "attention.key_length")
        # The same address is the same model, everywhere.
        self._random = np.random.default_rng(20261121)
        kinds = {"hybrid": "falcon-h1", "recurrent": "mamba"}
        self.architecture = kinds.get(variant.kind, "llama")

    @staticmethod
    def _number(reader: GGUFReader, key: str) -> int:
        field = reader.get_field(f"llama.{key}")
        if field is None:
            raise ValueError(f"no llama.{key}")
        return int(field.contents())

    def add_fields(self, writer: GGUFWriter) -> None:
        """Write what the variant has and the model has not, or has otherwise."""
        kind, n = self._variant.kind, self._variant.n
        layers = {"layers": self._n_layers + n, "recurrent": n}
        writer.add_block_count(layers.get(kind, self._n_layers))
        if kind == "experts":
            writer.add_expert_count(n)
            writer.add_expert_used_count(1)
        if kind in {"hybrid", "recurrent"}:
            recurrent = kind == "recurrent"
            writer.add_ssm_conv_kernel(_D_CONV)
            writer.add_ssm_state_size(_D_STATE)
            writer.add_ssm_inner_size(2 * self._n_embd if recurrent else _D_INNER)
            writer.add_ssm_time_step_rank(_DT_RANK if recurrent else _N_SSM_HEADS)
            if not recurrent:
                writer.add_ssm_group_count(1)

    def all_tensors(self) -> Iterator[Tensor]:
        """Yield the variant's tensors."""
        kind = self._variant.kind
        if kind == "recurrent":
            yield from self._recurrent()
            return
        for name, values in self._tensors.items():
            yield self._changed(name, values)
        if kind == "layers":
            yield from self._more_layers()
        for layer in range(self._n_layers):
            if kind == "experts":
                router = self._normal(self._variant.n, self._n_embd, scale=1.0)
                yield f"blk.{layer}.ffn_gate_inp.weight", router
            elif kind == "hybrid":
                yield from self._state_space(layer)

    def _changed(self, name: str, values: NDArray[Any]) -> Tensor:
        """Return one of the model's tensors as the variant has it."""
        kind = self._variant.kind
        part = name.removeprefix("blk.").partition(".")[2]
        is_norm = part == "ffn_norm.weight"
        if kind == "experts" and part.startswith("ffn_") and not is_norm:
            return name.replace(".weight", "_exps.weight"), np.stack([values] * self._variant.n)
        if kind == "hybrid" and part in _ROTATED:
            return name, _halves(values, self._head_dim)
        if kind == "hybrid" and is_norm:
            return name.removesuffix(".weight"), values  # as this architecture has it
        return name, values

    def _more_layers(self) -> Iterator[Tensor]:
        for extra in range(self._variant.n):
            prefix = f"blk.{extra % self._n_layers}."
            for name, values in self._tensors.items():
                if name.startswith(prefix):
                    part = name.removeprefix(prefix)
                    made = np.zeros_like(values) if part in _ZEROED else values
                    yield f"blk.{self._n_layers + extra}.{part}", made

    def _state_space(self, layer: int) -> Iterator[Tensor]:
        prefix = f"blk.{layer}.ssm_"
        convolved = _D_INNER + 2 * _D_STATE
        projected = _D_INNER + convolved + _N_SSM_HEADS
        yield prefix + "in.weight", self._normal(projected, self._n_embd).astype(np.float16)
        yield prefix + "conv1d.weight", self._normal(convolved, _D_CONV, scale=0.2)
        yield prefix + "conv1d.bias", np.zeros(convolved, np.float32)
        yield prefix + "dt.bias", np.zeros(_N_SSM_HEADS, np.float32)
        yield prefix + "a", np.full((_N_SSM_HEADS, 1), -1, np.float32)
        yield prefix + "d", np.ones((_N_SSM_HEADS, 1), np.float32)
        yield prefix + "norm.weight", np.ones((1, _D_INNER), np.float32)
        yield prefix + "out.weight", np.zeros((self._n_embd, _D_INNER), np.float16)

    def _recurrent(self) -> Iterator[Tensor]:
        inner = 2 * self._n_embd
        for name in ("token_embd.weight", "output_norm.weight", "output.weight"):
            if name in self._tensors:
                yield name, self._tensors[name]
        for layer in range(self._variant.n):
            prefix = f"blk.{layer}.ssm_"
            decay = -np.arange(1, _D_STATE + 1, dtype=np.float32)
            half = np.float16
            yield f"blk.{layer}.attn_norm.weight", np.ones(self._n_embd, np.float32)
            yield prefix + "in.weight", self._normal(2 * inner, self._n_embd).astype(half)
            yield prefix + "conv1d.weight", self._normal(inner, _D_CONV, scale=0.5)
            yield prefix + "conv1d.bias", np.zeros(inner, np.float32)
            yield prefix + "x.weight", self._normal(_DT_RANK + 2 * _D_STATE, inner).astype(half)
            yield prefix + "dt.weight", self._normal(inner, _DT_RANK, scale=0.1)
            yield prefix + "dt.bias", np.full(inner, -2, np.float32)
            yield prefix + "a", np.broadcast_to(decay, (inner, _D_STATE)).copy()
            yield prefix + "d", np.ones(inner, np.float32)
            yield prefix + "out.weight", self._normal(self._n_embd, inner).astype(half)

    def _normal(self, *shape: int, scale: float | None = None) -> NDArray[np.float32]:
        spread = shape[-1] ** -0.5 if scale is None else scale
        return (self._random.standard_normal(shape) * spread).astype(np.float32)


def _halves(values: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Reorder rows of Q or K that rotate neighbours so that they rotate halves of a head."""
    rows, columns = values.shape
    pairs = values.reshape(rows // head_dim, head_dim // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
