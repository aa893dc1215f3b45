"""The bytes that one step reads of a GGUF file, and those that its cache keeps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from pytest_asperf.modelfiles.gguf_read import bytes_per_token, inspect_gguf
from tests.modelfiles.gguf_files import write_gguf

F16 = 2
DENSE = {
    "token_embd.weight": (4, 32),
    "output_norm.weight": (1, 32),
    "blk.0.attn_k.weight": (16, 32),
    "blk.0.ffn_up.weight": (64, 32),
    "blk.1.attn_k.weight": (16, 32),
    "blk.1.ffn_up.weight": (64, 32),
}
LAYERS = 2 * (16 + 64) * 32
KV = {"attention.head_count_kv": 2}


@pytest.mark.parametrize(
    ("change", "keys", "depth", "expected"),
    [
        ({}, {}, 0, 4 * 32 + 32 + LAYERS),
        ({"output.weight": (4, 32)}, {}, 0, 4 * 32 + 32 + LAYERS),
        ({"position_embd.weight": (64, 32)}, {}, 0, 4 * 32 + 32 + LAYERS),
        ({}, KV, 10, 4 * 32 + 32 + LAYERS + 10 * 2 * 2 * 2 * 8),
        ({}, {**KV, "attention.sliding_window": 4}, 10, 4 * 32 + 32 + LAYERS + 4 * 2 * 2 * 2 * 8),
        (
            {"blk.1.ffn_up_exps.weight": (8, 16, 32)},
            {"expert_count": 8, "expert_used_count": 2},
            0,
            4 * 32 + 32 + LAYERS + 2 * 16 * 32,
        ),
        ({"blk.1.ffn_up.3.weight": (16, 32)}, {"expert_count": 8, "expert_used_count": 4}, 0,
         4 * 32 + 32 + LAYERS + 8 * 32),
        (
            {
                "output.weight": (4, 32),
                "blk.1.ffn_gate_inp.weight": (8, 32),
                "blk.1.ffn_down_exps.weight": (8, 16, 32),
                "blk.1.ffn_down_shexp.weight": (16, 32),
            },
            {**KV, "expert_count": 8, "expert_used_count": 1},
            10,
            4 * 32 + 32 + LAYERS + 8 * 32 + 16 * 32 + 16 * 32 + 10 * 2 * 2 * 2 * 8,
        ),
        (
            {},
            {**KV, "nextn_predict_layers": 1},
            10,
            4 * 32 + 32 + LAYERS // 2 + 10 * 1 * 2 * 2 * 8,
        ),
    ],
    ids=["tied", "untied", "lookup", "kv", "window", "experts", "split-experts", "shared-expert",
         "nextn"],
)  # fmt: skip
def test_bytes_per_token_counts_what_one_step_reads(
    tmp_path: Path,
    change: dict[str, tuple[int, ...]],
    keys: dict[str, Any],
    depth: int,
    expected: int,
) -> None:
    """Weights in F16 and an f16 cache, so bytes are elements times two, by hand."""
    path = write_gguf(tmp_path / "x.gguf", tensors={**DENSE, **change}, keys=keys)
    assert bytes_per_token(inspect_gguf(path), depth=depth) == F16 * expected


def test_bytes_per_token_takes_the_type_of_each_cache(tmp_path: Path) -> None:
    """A q8_0 K cache costs 34 bytes for 32 elements where an f16 V cache costs 64."""
    info = inspect_gguf(write_gguf(tmp_path / "x.gguf", tensors=DENSE, keys=KV))
    sizes = (34 / 32, 2.0)
    added = bytes_per_token(info, depth=100, kv_bytes_per_element=sizes) - bytes_per_token(info)
    assert added == 100 * 2 * (2 * 8) * (34 + 64) // 32


def test_latent_attention_keeps_one_cache(tmp_path: Path) -> None:
    """With a latent (MLA) cache, V is a view into K and is not read twice."""
    keys = {"attention.head_count_kv": 1, "attention.kv_lora_rank": 16, "attention.key_length": 24}
    tensors = {"token_embd.weight": (4, 32), "blk.0.attn_kv_a_mqa.weight": (24, 32)}
    info = inspect_gguf(write_gguf(tmp_path / "x.gguf", keys=keys, tensors=tensors))
    assert info.kv_elements == (24, 0)


def test_recurrent_layers_keep_no_kv(tmp_path: Path) -> None:
    """Only the layers with attention of a hybrid model grow with the context."""
    tensors = {
        "token_embd.weight": (4, 32),
        "blk.0.attn_qkv.weight": (96, 32),
        "blk.0.ssm_a": (1, 32),
        "blk.1.attn_qkv.weight": (96, 32),
    }
    info = inspect_gguf(write_gguf(tmp_path / "x.gguf", tensors=tensors))
    assert info.kv_elements == (32, 32)


def test_quantised_tensors_have_the_sizes_of_their_blocks(tmp_path: Path) -> None:
    """A Q4_K row of 256 elements has 144 bytes."""
    writer = GGUFWriter(tmp_path / "x.gguf", "llama")
    for add in (writer.add_block_count, writer.add_embedding_length, writer.add_context_length):
        add(1)
    raw = np.zeros((3, 144), np.uint8)
    writer.add_tensor("output.weight", raw, raw_dtype=GGMLQuantizationType.Q4_K)
    writer.add_tensor("token_embd.weight", np.zeros((3, 256), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = inspect_gguf(tmp_path / "x.gguf").tensors[0]
    assert (tensor.type, tensor.shape, tensor.nbytes) == ("Q4_K", (256, 3), 3 * 144)
