"""GGUF files of BERT: small ones with random weights, or with the weights that are given."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, PoolingType

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()"
#: A token begins a word, or goes on with one; GGUF marks the beginnings.
TOKENS = (*_SPECIAL, *(f"▁{letter}" for letter in _LETTERS), *_LETTERS)
_MEAN = 1


def write_encoder(
    path: Path,
    *,
    n_layers: int = 2,
    n_embd: int = 64,
    n_heads: int = 4,
    n_ctx: int = 256,
    pooling: int = _MEAN,
    tokens: Sequence[str] = TOKENS,
    weights: Mapping[str, Any] | None = None,
) -> Path:
    """Write a BERT; random weights that distinguish texts if none are given."""
    writer = GGUFWriter(path, "bert")
    writer.add_file_type(1)
    writer.add_block_count(n_layers)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(4 * n_embd)
    writer.add_head_count(n_heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(PoolingType(pooling))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(tokens))
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([3 if token in _SPECIAL else 1 for token in tokens])
    writer.add_token_type_count(2)
    numbers = {name: list(tokens).index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP")}
    writer.add_pad_token_id(numbers["PAD"])
    writer.add_unk_token_id(numbers["UNK"])
    writer.add_bos_token_id(numbers["CLS"])
    writer.add_sep_token_id(numbers["SEP"])
    given = weights or _random(n_layers, n_embd, n_ctx, len(tokens))
    for name, values in given.items():
        is_matrix = values.ndim > 1 and not name.startswith(("position", "token_types"))
        writer.add_tensor(name, values.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _random(n_layers: int, n_embd: int, n_ctx: int, n_vocab: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return rng.normal(0, columns**-0.5, (rows, columns))

    made = {
        "token_embd.weight": rng.normal(0, 1, (n_vocab, n_embd)),
        "position_embd.weight": rng.normal(0, 0.3, (n_ctx, n_embd)),
        "token_types.weight": rng.normal(0, 0.1, (2, n_embd)),
    }
    norms = ["token_embd_norm"]
    for n in range(n_layers):
        norms += [f"blk.{n}.attn_output_norm", f"blk.{n}.layer_output_norm"]
        sizes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (n_embd, n_embd))
        sizes |= {"ffn_up": (4 * n_embd, n_embd), "ffn_down": (n_embd, 4 * n_embd)}
        for part, (rows, columns) in sizes.items():
            made[f"blk.{n}.{part}.weight"] = matrix(rows, columns)
            made[f"blk.{n}.{part}.bias"] = rng.normal(0, 0.02, rows)
    for norm in norms:
        made[f"{norm}.weight"], made[f"{norm}.bias"] = np.ones(n_embd), np.zeros(n_embd)
    return made
