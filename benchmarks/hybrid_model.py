"""A small hybrid model at Q4_0, for a case that no shipped model shows: its weights are random.

Three of its four layers are LFM2's short convolutions, whose projections are products of three
dimensions: tokens, sequences and width. `python benchmarks/hybrid_model.py FILE` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gguf
import numpy as np
from models import add_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_WIDTH: Final = 256
_FEED_FORWARD: Final = 512
_HEAD: Final = 64
_KV_HEADS: Final = 2
#: Inputs that a convolution sees.
_CONVOLVED: Final = 3
_IS_ATTENTION: Final = (False, False, True, False)
_VOCABULARY: Final = 2048


def write(path: Path) -> None:
    """Write the model."""
    writer = gguf.GGUFWriter(path, "lfm2")
    writer.add_name("random hybrid")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_vocab_size(_VOCABULARY)
    writer.add_context_length(2048)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(len(_IS_ATTENTION))
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_WIDTH // _HEAD)
    writer.add_head_count_kv([_KV_HEADS * is_attention for is_attention in _IS_ATTENTION])
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_shortconv_l_cache(_CONVOLVED)
    add_tokenizer(writer, _VOCABULARY)
    for name, weights in _tensors():
        if weights.ndim == 1 or "conv.conv" in name:
            writer.add_tensor(name, weights)
        else:
            kind = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors() -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and weights of each tensor; a weight of norms is one, the others keep the variance."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    one, head = np.ones(_WIDTH, np.float32), np.ones(_HEAD, np.float32)
    yield "token_embd.weight", random(_VOCABULARY, _WIDTH)
    yield "token_embd_norm.weight", one
    for layer, is_attention in enumerate(_IS_ATTENTION):
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", one
        yield f"{block}ffn_norm.weight", one
        yield f"{block}ffn_gate.weight", random(_FEED_FORWARD, _WIDTH)
        yield f"{block}ffn_up.weight", random(_FEED_FORWARD, _WIDTH)
        yield f"{block}ffn_down.weight", random(_WIDTH, _FEED_FORWARD)
        if is_attention:
            yield f"{block}attn_q.weight", random(_WIDTH, _WIDTH)
            yield f"{block}attn_k.weight", random(_KV_HEADS * _HEAD, _WIDTH)
            yield f"{block}attn_v.weight", random(_KV_HEADS * _HEAD, _WIDTH)
            yield f"{block}attn_output.weight", random(_WIDTH, _WIDTH)
            yield f"{block}attn_q_norm.weight", head
            yield f"{block}attn_k_norm.weight", head
        else:
            yield f"{block}shortconv.conv.weight", random(_WIDTH, _CONVOLVED)
            yield f"{block}shortconv.in_proj.weight", random(3 * _WIDTH, _WIDTH)
            yield f"{block}shortconv.out_proj.weight", random(_WIDTH, _WIDTH)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
