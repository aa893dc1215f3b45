"""A tiny random Llama in Hugging Face format, and llama.cpp to compare the results with."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_asperf.config.engines import LLAMA_FTYPES
from pytest_asperf.modelfiles.convert import hf_to_gguf

N_LAYERS, N_HEADS, N_KV_HEADS, N_FF, N_CTX = 2, 4, 2, 512, 128
MERGES = ("t h", "th e", "Ġ the", "a t", "Ġ c")
SPECIALS = ("<s>", "</s>")
#: Further required fields of an added token in the `tokenizers` library.
_STRIPPING = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@dataclass(frozen=True)
class TinyLlama:
    """A model folder, and the weights and ids that went into it."""

    folder: Path
    weights: dict[str, NDArray[np.float32]]
    config: dict[str, Any]
    ids: dict[str, int]


@pytest.fixture(scope="session")
def write_llama() -> Callable[..., TinyLlama]:
    """Return a function that writes a random Llama: `(folder, n_embd=, dtype=, tied=)`."""
    return _write_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyLlama:
    """A tied F16 model with rows of 256 elements; not to be changed."""
    return _write_llama(tmp_path_factory.mktemp("hf") / "tiny")


@pytest.fixture(scope="session")
def tiny_gguf(tiny: TinyLlama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model as F16 GGUF; not to be changed."""
    path = tmp_path_factory.mktemp("gguf") / "tiny-F16.gguf"
    hf_to_gguf(tiny.folder, path)
    return path


@cache
def _discard() -> Any:
    """A callback that llama.cpp may call as long as the process lives."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda *_: None)


@pytest.fixture
def llama_log() -> Iterator[list[str]]:
    """The log of llama.cpp during the test."""
    llama_cpp = pytest.importorskip("llama_cpp")
    lines: list[str] = []
    keep = llama_cpp.llama_log_callback(
        lambda _level, text, _data: lines.append(text.decode(errors="replace"))
    )
    llama_cpp.llama_log_set(keep, None)
    yield lines
    llama_cpp.llama_log_set(_discard(), None)


@pytest.fixture
def quantize(llama_log: list[str]) -> Callable[[Path, Path, str], None]:
    """Return llama.cpp's own quantizer on one thread."""
    import llama_cpp

    def run(source: Path, target: Path, level: str) -> None:
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.nthread = LLAMA_FTYPES[level], 1
        status = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(target), params)
        if status != 0:
            raise RuntimeError("".join(llama_log))

    return run


def byte_letters() -> dict[int, str]:
    """Return GPT-2's letter for each byte: itself where printable, otherwise from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def _write_llama(
    folder: Path,
    *,
    n_embd: int = 256,
    dtype: str = "F16",
    tied: bool = True,
    merges: tuple[object, ...] = MERGES,
) -> TinyLlama:
    folder.mkdir(parents=True)
    texts = [*byte_letters().values(), *(merge.replace(" ", "") for merge in MERGES)]
    ids = {text: number for number, text in enumerate(texts)}
    added = {text: len(ids) + number for number, text in enumerate(SPECIALS)}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": n_embd,
        "intermediate_size": N_FF,
        "num_hidden_layers": N_LAYERS,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_KV_HEADS,
        "vocab_size": len(ids) + len(added) + 1,  # one row that has no token
        "max_position_embeddings": N_CTX,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": added["<s>"],
        "eos_token_id": added["</s>"],
    }
    tokenizer = {
        "added_tokens": [
            {"id": number, "content": text, "special": True, **_STRIPPING}
            for text, number in added.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "use_regex": True,
            "trim_offsets": True,
        },
        "model": {"type": "BPE", "vocab": ids, "merges": list(merges)},
    }
    weights = _random_weights(config)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_safetensors(folder / "model.safetensors", weights, dtype)
    return TinyLlama(folder=folder, weights=weights, config=config, ids=ids | added)


def _random_weights(config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(0)
    n_embd, head_dim = config["hidden_size"], config["hidden_size"] // N_HEADS

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))

    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], n_embd) * 16,
        "model.norm.weight": 1 + matrix(1, n_embd)[0],
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], n_embd)
    for layer in range(N_LAYERS):
        for name, shape in {
            "input_layernorm": None,
            "self_attn.q_proj": (N_HEADS * head_dim, n_embd),
            "self_attn.k_proj": (N_KV_HEADS * head_dim, n_embd),
            "self_attn.v_proj": (N_KV_HEADS * head_dim, n_embd),
            "self_attn.o_proj": (n_embd, N_HEADS * head_dim),
            "post_attention_layernorm": None,
            "mlp.gate_proj": (N_FF, n_embd),
            "mlp.up_proj": (N_FF, n_embd),
            "mlp.down_proj": (n_embd, N_FF),
        }.items():
            weights[f"model.layers.{layer}.{name}.weight"] = (
                matrix(*shape) * 2 if shape else 1 + matrix(1, n_embd)[0]
            )
    return {name: _rounded(weight) for name, weight in weights.items()}


def _rounded(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return numbers that bf16 and f16 both represent, so that each stored form is one model."""
    return (weight.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def write_safetensors(path: Path, weights: dict[str, NDArray[np.float32]], dtype: str) -> None:
    """Write weights as one safetensors file of F32, F16 or BF16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, weight in weights.items():
        raw = {
            "F32": lambda w: w.tobytes(),
            "F16": lambda w: w.astype(np.float16).tobytes(),
            "BF16": lambda w: (w.view(np.uint32) >> 16).astype(np.uint16).tobytes(),
        }[dtype](weight)
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(weight.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
