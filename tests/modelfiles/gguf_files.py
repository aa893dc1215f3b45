"""Small GGUF files with chosen metadata and tensors."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter

TOKENS, MERGES = ["a", "b", "ab", "é"], ["a b"]


def write_gguf(
    path: Path,
    *,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    arch: str = "llama",
    keys: dict[str, Any] | None = None,
    tokenizer: tuple[list[str], list[str], str] | None = (TOKENS, MERGES, "gpt-2"),
    endian: GGUFEndian = GGUFEndian.LITTLE,
) -> Path:
    """Write a small GGUF file of F16 tensors; shapes have the rows first, as numpy has it."""
    writer = GGUFWriter(None, arch, endianess=endian)
    settings = {"block_count": 2, "embedding_length": 32, "context_length": 64}
    for key, value in {**settings, "attention.head_count": 4, **(keys or {})}.items():
        is_whole = key.startswith(("general.", "split.", "tokenizer."))
        name = key if is_whole else f"{arch}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    if tokenizer is not None:
        tokens, merges, pre = tokenizer
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_token_merges(merges)
    for name, shape in (tensors or {"token_embd.weight": (4, 32)}).items():
        writer.add_tensor(name, np.ones(shape, np.float16))
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _copied(source: Path, writer: GGUFWriter, *, n_padding: int = 0) -> GGUFReader:
    """Copy a model's metadata, with that many unused tokens more; returns its reading."""
    reader = GGUFReader(source)
    padding: dict[str, list[Any]] = {
        "tokenizer.ggml.tokens": [f"[PAD{n}]" for n in range(n_padding)],
        "tokenizer.ggml.token_type": [5] * n_padding,
    }
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, *element = field.types
        if kind == GGUFValueType.ARRAY:
            values = [*field.contents(), *padding.get(key, [])]
            writer.add_key_value(key, values, kind, sub_type=element[0])
        else:
            more = n_padding if key.endswith(".vocab_size") else None
            value = field.contents()
            writer.add_key_value(key, value + more if more else value, kind)
    return reader


def write_windowed(source: Path, target: Path) -> Path:
    """Write a llama model as one of Gemma 2 with eight layers: half of them see 64 tokens."""
    writer = GGUFWriter(target, "gemma2")
    reader = GGUFReader(source)
    numbers = {"block_count": 8, "attention.head_count_kv": 4, "attention.sliding_window": 64}
    for key, field in reader.fields.items():
        name = key.removeprefix("llama.")
        if key.startswith("GGUF.") or key == "general.architecture" or name in numbers:
            continue
        kind, *element = field.types
        own = f"gemma2.{name}" if name != key else key
        writer.add_key_value(own, field.contents(), kind, sub_type=element[0] if element else None)
    for name, number in numbers.items():
        writer.add_uint32(f"gemma2.{name}", number)
    for tensor in reader.tensors:
        data, (block, _, rest) = np.array(tensor.data), tensor.name[4:].partition(".")
        if not tensor.name.startswith("blk."):
            writer.add_tensor(tensor.name, data)
            continue
        data = np.tile(data, (4, 1)) if rest.startswith(("attn_k", "attn_v")) else data
        for layer in range(int(block), 8, 2):
            writer.add_tensor(f"blk.{layer}.{rest}", data)
    for layer in range(8):
        for name in ("post_attention_norm", "post_ffw_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.full(256, 0.3, np.float32))
    _written(writer)
    return target


def _written(writer: GGUFWriter) -> None:
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def write_parts(source: Path, folder: Path, name: str, *, n_tensors: int) -> tuple[Path, ...]:
    """Write a model in parts of so many tensors, as llama-gguf-split does."""
    writer = GGUFWriter(folder / f"{name}.gguf", "llama", split_max_tensors=n_tensors)
    for tensor in _copied(source, writer).tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    _written(writer)
    return tuple(sorted(folder.glob(f"{name}-*.gguf")))


def write_padded(source: Path, target: Path, n_padding: int) -> Path:
    """Write a float model with so many unused tokens behind its own, as larger models have."""
    writer = GGUFWriter(target, "llama")
    for tensor in _copied(source, writer, n_padding=n_padding).tensors:
        data = np.array(tensor.data)
        if tensor.name in {"token_embd.weight", "output.weight"}:
            data = np.concatenate([data, np.zeros((n_padding, *data.shape[1:]), data.dtype)])
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    _written(writer)
    return target


def write_types(
    path: Path, codes: list[tuple[int, int]], *, row: int = 256, file_type: int | None = None
) -> Path:
    """Write tensors of any type's number and bytes, as a program with types of its own does."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"block_count": 1, "embedding_length": row, "context_length": 64}
    numbers = {f"llama.{key}": n for key, n in numbers.items()} | {"llama.attention.head_count": 4}
    if file_type is not None:
        numbers["general.file_type"] = file_type
    values = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    values += [text(key) + struct.pack("<II", 4, n) for key, n in numbers.items()]
    names = ["token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight"]
    infos, data = [], b""
    for name, (code, n_bytes) in zip(names, codes, strict=False):
        place = struct.pack("<IQQIQ", 2, row, 4, code, len(data))
        infos.append(text(name) + place)
        data += bytes(n_bytes + -n_bytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values))
    head += b"".join(values) + b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path
