"""GGUF files of BERT, small and with random weights."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, PoolingType

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()"
#: A token begins a word, or goes on with one; GGUF marks the beginnings.
_TOKENS = (*_SPECIAL, *(f"▁{letter}" for letter in _LETTERS), *_LETTERS)
_MEAN = 1
_N_LAYERS, _N_EMBD, _N_HEADS, _N_CTX = 2, 64, 4, 256


def write_encoder(path: Path, *, pooling: int = _MEAN) -> Path:
    """Write a BERT whose weights distinguish texts."""
    writer = GGUFWriter(path, "bert")
    writer.add_file_type(1)
    writer.add_block_count(_N_LAYERS)
    writer.add_context_length(_N_CTX)
    writer.add_embedding_length(_N_EMBD)
    writer.add_feed_forward_length(4 * _N_EMBD)
    writer.add_head_count(_N_HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(PoolingType(pooling))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(_TOKENS))
    writer.add_token_scores([0.0] * len(_TOKENS))
    writer.add_token_types([3 if token in _SPECIAL else 1 for token in _TOKENS])
    writer.add_token_type_count(2)
    numbers = {name: _TOKENS.index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP")}
    writer.add_pad_token_id(numbers["PAD"])
    writer.add_unk_token_id(numbers["UNK"])
    writer.add_bos_token_id(numbers["CLS"])
    writer.add_sep_token_id(numbers["SEP"])
    for name, values in _weights().items():
        is_matrix = values.ndim > 1 and not name.startswith(("position", "token_types"))
        writer.add_tensor(name, values.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights() -> dict[str, Any]:
    n = _N_EMBD
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return rng.normal(0, columns**-0.5, (rows, columns))

    made = {
        "token_embd.weight": rng.normal(0, 1, (len(_TOKENS), n)),
        "position_embd.weight": rng.normal(0, 0.3, (_N_CTX, n)),
        "token_types.weight": rng.normal(0, 0.1, (2, n)),
    }
    norms = ["token_embd_norm"]
    for layer in range(_N_LAYERS):
        norms += [f"blk.{layer}.attn_output_norm", f"blk.{layer}.layer_output_norm"]
        sizes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (n, n))
        sizes |= {"ffn_up": (4 * n, n), "ffn_down": (n, 4 * n)}
        for part, (rows, columns) in sizes.items():
            made[f"blk.{layer}.{part}.weight"] = matrix(rows, columns)
            made[f"blk.{layer}.{part}.bias"] = rng.normal(0, 0.02, rows)
    for norm in norms:
        made[f"{norm}.weight"], made[f"{norm}.bias"] = np.ones(n), np.zeros(n)
    return made
