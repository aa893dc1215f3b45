"""The models: the shipped target, and models of other shapes with random weights."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_asperf.config.engines import Engine

#: The peers have no priority.
BUILD: Final = EngineBuild("llama_cpp", Path(sys.executable), nice=0)

#: A thread that waits at a barrier spins: one each is the most that two busy cores measure well.
SETTINGS: Final = EngineSettings(threads=1)

_HEAD_SIZE: Final = 64
#: Weights of one matrix that are drawn.
_MOST_DRAWN: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama model's sizes."""

    n_vocab: int
    n_embd: int
    n_ff: int
    n_layers: int


#: The vocabulary of today's larger models on a small body: scoring weighs more than it ever would.
LARGE_VOCABULARY: Final = Shape(n_vocab=150_000, n_embd=256, n_ff=768, n_layers=4)

#: Some milliseconds per token on one core.
SLOW: Final = Shape(n_vocab=2048, n_embd=512, n_ff=1536, n_layers=3)


def shipped_target(engine: Engine = "llama_cpp") -> ModelSpec:
    """Return the shipped target model, as an engine runs it."""
    target = next(spec for spec in shipped_models() if spec.name == "asperf-target")
    return target.on(engine)


def level_files(
    spec: ModelSpec, levels: tuple[str, ...], *, cache: Path | None = None
) -> dict[str, Path]:
    """Return a model's files by quantization, made if they are not in the cache yet."""
    locator = ModelLocator(BUILD, cache=cache or cache_root(os.environ), call_timeout_s=600)
    return {level: locator.locate(ModelRef(spec, level)).path for level in levels}


def write_random_llama(path: Path, shape: Shape, *, seed: int = 0, n_ctx: int = 2048) -> ModelSpec:
    """Write a Llama model with random F16 weights; its speed and memory are those of a real one."""
    writer = GGUFWriter(path, "llama")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_context_length(n_ctx)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_block_count(shape.n_layers)
    n_heads = shape.n_embd // _HEAD_SIZE
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_heads)
    writer.add_rope_dimension_count(_HEAD_SIZE)
    writer.add_key_length(_HEAD_SIZE)
    writer.add_value_length(_HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-5)
    add_tokenizer(writer, shape.n_vocab)
    rng = np.random.default_rng(seed)
    for name, size in _tensors(shape):
        norm = len(size) == 1
        writer.add_tensor(name, np.ones(size, np.float32) if norm else _random(rng, size))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelSpec(path.stem, gguf=path, settings=SETTINGS)


def _random(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float16]:
    """Random weights; those of a large matrix repeat, because drawing billions is slow."""
    n = math.prod(size)
    drawn = (rng.standard_normal(min(n, _MOST_DRAWN), np.float32) * 0.05).astype(np.float16)
    return np.resize(drawn, size)


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    n_embd, n_ff = shape.n_embd, shape.n_ff
    yield "token_embd.weight", (shape.n_vocab, n_embd)
    yield "output_norm.weight", (n_embd,)
    for block in (f"blk.{layer}." for layer in range(shape.n_layers)):
        yield block + "attn_norm.weight", (n_embd,)
        yield block + "ffn_norm.weight", (n_embd,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{block}{name}.weight", (n_embd, n_embd)
        yield block + "ffn_gate.weight", (n_ff, n_embd)
        yield block + "ffn_up.weight", (n_ff, n_embd)
        yield block + "ffn_down.weight", (n_embd, n_ff)


def add_tokenizer(writer: GGUFWriter, n_vocab: int) -> None:
    """Add a byte-level BPE: bytes, pairs of printable characters, then tokens no text reaches."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    # GPT-2's alphabet: bytes without a glyph of their own are shifted up, in order.
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(rest))]
    ascii_only = alphabet[:94]
    pairs = [(a, b) for a in ascii_only for b in ascii_only][: n_vocab - 257]
    known = ["<|bos|>", *alphabet, *(a + b for a, b in pairs)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*known, *(f"<{i}>" for i in range(n_vocab - len(known)))])
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (n_vocab - 1)])
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)  # noqa: FBT003  # gguf's signature
