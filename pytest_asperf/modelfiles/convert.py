"""Hugging Face Llama weights to a GGUF file in F16, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from numpy.typing import NDArray

from pytest_asperf.config.text_file import UnreadableTextError, read_json_table, shipped_table
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.causal import require_causal_folder
from pytest_asperf.modelfiles.safetensors_read import StoredTensor, read_safetensors

#: Part of the key of every file made here: raise it when the same input gives other bytes.
CONVERTER_VERSION: Final = 1

#: The files that are read from a folder in Hugging Face format.
HF_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json")

#: Names of tensors outside of the layers, of parts of a layer, and of those of padded models.
TENSOR_NAMES: Final[dict[str, dict[str, str]]] = shipped_table("tensor-names")


@dataclass(frozen=True, slots=True)
class _LlamaConfig:
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx: int
    rms_eps: float
    rope_base: float
    tied: bool
    bos: int | None
    eos: int | None


@dataclass(frozen=True, slots=True)
class _Mapped:
    """The source and the destination of one tensor; `rotated_heads` marks Q and K."""

    source: str
    name: str
    shape: tuple[int, ...]
    rotated_heads: int | None = None

    @property
    def is_norm(self) -> bool:
        return len(self.shape) == 1


def hf_to_gguf(folder: Path, dest: Path) -> None:
    """Write the Hugging Face Llama model of `HF_FILES` as a GGUF file in F16, norms in F32.

    Raises:
        ModelError: a file is missing or corrupt, the architecture or the tokenizer is another one,
            or the weights are not those that the configuration describes.
        OSError: `dest` cannot be written.
    """
    settings = _read_json(folder / "config.json")
    config = _parse_config(folder / "config.json", settings)
    tokenizer = folder / "tokenizer.json"
    vocabulary = read_vocabulary(tokenizer, _read_json(tokenizer), n_vocab=config.n_vocab)
    weights = folder / "model.safetensors"
    stored, mapped = _stored_tensors(weights, config)
    writer = GGUFWriter(None, "llama")
    writer.add_name(folder.name)
    _add_config(writer, config)
    _add_vocabulary(writer, vocabulary, config)
    for tensor in mapped:
        kind = np.dtype(np.float32 if tensor.is_norm else np.float16)
        nbytes = int(np.prod(tensor.shape)) * kind.itemsize
        writer.add_tensor_info(tensor.name, tensor.shape, kind, nbytes)
    try:
        writer.write_header_to_file(dest)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in mapped:
            writer.write_tensor_data(_converted(weights, stored[tensor.source], tensor))
    finally:
        writer.close()


def read_llama(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A Hugging Face Llama model's configuration, and its weights by their names in GGUF.

    Weights are in F16, norms in F32; Q and K rotate halves of a head, as they do in the folder.
    """
    settings = _read_json(folder / "config.json")
    config = _parse_config(folder / "config.json", settings)
    weights = folder / "model.safetensors"
    stored, mapped = _stored_tensors(weights, config)
    return settings, {t.name: _narrowed(weights, stored[t.source], t) for t in mapped}


def _stored_tensors(
    weights: Path, config: _LlamaConfig
) -> tuple[Mapping[str, StoredTensor], tuple[_Mapped, ...]]:
    stored = read_safetensors(weights)
    mapped = tuple(_mapped_tensors(config))
    _check_tensors(weights, stored, mapped)
    return stored, mapped


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json_table(path)
    except UnreadableTextError as error:
        raise _incomplete(path, f"it {error}") from error


def _incomplete(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}",
        remedy=f"give a folder in Hugging Face format with {', '.join(HF_FILES)}",
    )


def _parse_config(path: Path, config: Mapping[str, Any]) -> _LlamaConfig:
    require_causal_folder(path.parent, config)
    _require_plain_llama(path, config)
    n_heads = _number(path, config, "num_attention_heads")
    n_embd = _number(path, config, "hidden_size")
    rope = config.get("rope_parameters") or {}
    parsed = _LlamaConfig(
        n_layers=_number(path, config, "num_hidden_layers"),
        n_embd=n_embd,
        n_ff=_number(path, config, "intermediate_size"),
        n_heads=n_heads,
        n_kv_heads=_number(path, config, "num_key_value_heads", default=n_heads),
        head_dim=_number(path, config, "head_dim", default=n_embd // n_heads),
        n_vocab=_number(path, config, "vocab_size"),
        n_ctx=_number(path, config, "max_position_embeddings"),
        rms_eps=_positive(path, config, "rms_norm_eps", default=1e-6),
        rope_base=_positive(path, {**rope, **config}, "rope_theta", default=10_000.0),
        tied=config.get("tie_word_embeddings") is True,
        bos=_token_id(path, config, "bos_token_id"),
        eos=_token_id(path, config, "eos_token_id"),
    )
    if n_heads % parsed.n_kv_heads or parsed.head_dim % 2:
        raise _unsupported(
            path,
            f"{n_heads} heads of {parsed.head_dim} elements on {parsed.n_kv_heads} K and V heads",
        )
    return parsed


def _require_plain_llama(path: Path, config: Mapping[str, Any]) -> None:
    """Reject every setting that would change the model's function and is not converted."""
    architectures = config.get("architectures")
    if architectures != ["LlamaForCausalLM"]:
        raise _unsupported(path, f"architectures = {str(architectures)[:100]}")
    for key, plain in (
        ("attention_bias", False),
        ("mlp_bias", False),
        ("hidden_act", "silu"),
        ("rope_scaling", None),
        ("quantization_config", None),
    ):
        if config.get(key, plain) != plain:
            raise _unsupported(path, f"{key} = {str(config[key])[:100]}")
    rope = config.get("rope_parameters") or {}
    if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
        raise _unsupported(path, f"rope_parameters = {str(rope)[:100]}")


def _unsupported(path: Path, what: str) -> ModelError:
    return ModelError(
        f"{path}: {what} cannot be converted",
        why="only plain Llama models (LlamaForCausalLM) are converted here; another model would "
        "come out wrong",
        remedy="convert it with llama.cpp's convert_hf_to_gguf.py, and give the GGUF file",
    )


def _number(path: Path, config: Mapping[str, Any], key: str, *, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if type(value) is not int or not 1 <= value < 1 << 31:
        raise _incomplete(path, f"{key} = {str(value)[:60]} is not a positive whole number")
    return value


def _positive(path: Path, config: Mapping[str, Any], key: str, *, default: float) -> float:
    value = config.get(key, default)
    if type(value) not in {int, float} or not 0 < value < 1e30:
        raise _incomplete(path, f"{key} = {str(value)[:60]} is not a positive number")
    return float(value)


def _token_id(path: Path, config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if isinstance(value, list) and value:
        value = value[0]
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < _number(path, config, "vocab_size"):
        raise _incomplete(path, f"{key} = {str(value)[:60]} is not a token of the vocabulary")
    return value


def _mapped_tensors(config: _LlamaConfig) -> Iterator[_Mapped]:
    n_embd, n_ff, vocabulary = config.n_embd, config.n_ff, (config.n_vocab, config.n_embd)
    q_rows, kv_rows = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    yield _Mapped("model.embed_tokens.weight", "token_embd.weight", vocabulary)
    yield _Mapped("model.norm.weight", "output_norm.weight", (n_embd,))
    if not config.tied:
        yield _Mapped("lm_head.weight", "output.weight", vocabulary)
    shapes = {
        "attn_norm": (n_embd,),
        "attn_q": (q_rows, n_embd),
        "attn_k": (kv_rows, n_embd),
        "attn_v": (kv_rows, n_embd),
        "attn_output": (n_embd, q_rows),
        "ffn_norm": (n_embd,),
        "ffn_gate": (n_ff, n_embd),
        "ffn_up": (n_ff, n_embd),
        "ffn_down": (n_embd, n_ff),
    }
    heads = {"attn_q": config.n_heads, "attn_k": config.n_kv_heads}
    for layer in range(config.n_layers):
        for name, source in TENSOR_NAMES["layers"].items():
            yield _Mapped(
                f"model.layers.{layer}.{source}.weight",
                f"blk.{layer}.{name}.weight",
                shapes[name],
                heads.get(name),
            )


def _check_tensors(
    path: Path, stored: Mapping[str, StoredTensor], mapped: tuple[_Mapped, ...]
) -> None:
    wanted = {tensor.source: tensor.shape for tensor in mapped}
    for verb, names in (
        ("lacks", wanted.keys() - stored.keys()),
        ("has, beyond config.json,", stored.keys() - wanted.keys()),
    ):
        if names:
            shown = ", ".join(name[:100] for name in sorted(names)[:3])
            raise _mismatch(path, f"it {verb} {len(names)} tensors: {shown}, ...")
    for name, shape in wanted.items():
        if stored[name].shape != shape:
            raise _mismatch(
                path, f"{name} has the shape {list(stored[name].shape)}, not {list(shape)}"
            )


def _mismatch(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}",
        why="the weights are not those that its config.json describes",
        remedy="use both files of one model",
    )


def _converted(path: Path, stored: StoredTensor, tensor: _Mapped) -> NDArray[Any]:
    values = _narrowed(path, stored, tensor)
    return values if tensor.rotated_heads is None else _interleaved(values, tensor.rotated_heads)


def _narrowed(path: Path, stored: StoredTensor, tensor: _Mapped) -> NDArray[Any]:
    values = stored.as_float32()
    if not np.isfinite(values).all():
        raise _mismatch(path, f"{tensor.source} has infinite or undefined numbers")
    if tensor.is_norm:
        return values
    if np.abs(values).max() > np.finfo(np.float16).max:
        raise _mismatch(path, f"{tensor.source} has numbers too large for F16")
    return values.astype(np.float16)


def _interleaved(values: NDArray[Any], n_heads: int) -> NDArray[Any]:
    """Reorder the rows of Q or K: transformers rotates halves of a head, llama.cpp neighbours."""
    rows, columns = values.shape
    halves = values.reshape(n_heads, 2, rows // n_heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _add_config(writer: GGUFWriter, config: _LlamaConfig) -> None:
    writer.add_file_type(int(GGMLQuantizationType.F16))
    writer.add_quantization_version(2)
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.n_ff)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.rms_eps)


def _add_vocabulary(writer: GGUFWriter, vocabulary: BpeVocabulary, config: _LlamaConfig) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    writer.add_token_merges(list(vocabulary.merges))
    if config.bos is not None:
        writer.add_bos_token_id(config.bos)
    if config.eos is not None:
        writer.add_eos_token_id(config.eos)
    writer.add_add_bos_token(config.bos is not None)


@dataclass(frozen=True, slots=True)
class BpeVocabulary:
    """A byte-level BPE vocabulary: tokens by id as GPT-2 spells bytes, and merges in order."""

    tokens: tuple[str, ...]
    kinds: tuple[TokenType, ...]
    merges: tuple[str, ...]


def read_vocabulary(path: Path, tokenizer: Mapping[str, Any], *, n_vocab: int) -> BpeVocabulary:
    """The vocabulary of a `tokenizer.json`; ids below `n_vocab` without a token are unused."""
    _require_gpt2_splitting(path, tokenizer)
    model = tokenizer["model"]
    ids, kinds = _token_ids(path, model), {}
    for added in _list(path, tokenizer, "added_tokens"):
        match added:
            case {"id": int(number), "content": str(text), **rest}:
                ids[text] = number
                kinds[number] = (
                    TokenType.CONTROL if rest.get("special") is True else TokenType.USER_DEFINED
                )
            case _:
                raise _unusable(path, f"added token {str(added)[:60]} has no id or no content")
    texts = {number: text for text, number in ids.items()}
    if len(texts) < len(ids) or not all(0 <= number < n_vocab for number in texts):
        raise _unusable(path, f"its token ids are not distinct numbers below {n_vocab}")
    return BpeVocabulary(
        tokens=tuple(texts.get(number, f"[UNUSED{number}]") for number in range(n_vocab)),
        kinds=tuple(
            kinds.get(number, TokenType.NORMAL) if number in texts else TokenType.UNUSED
            for number in range(n_vocab)
        ),
        merges=tuple(_merge(path, item, ids) for item in _list(path, model, "merges")),
    )


def _require_gpt2_splitting(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """Reject a text rule that llama.cpp's `gpt-2` would split differently, with a worse PPL."""
    model, splitter = tokenizer.get("model"), tokenizer.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise _unusable(path, "it is not a BPE tokenizer")
    if model.get("byte_fallback") or model.get("ignore_merges") or model.get("dropout"):
        raise _unusable(path, "it uses byte_fallback, ignore_merges or dropout")
    if tokenizer.get("normalizer") is not None:
        raise _unusable(path, "it has a normalizer")
    match splitter:
        case {"type": "ByteLevel", "add_prefix_space": False, **rest} if rest.get(
            "use_regex", True
        ):
            return
        case _:
            raise _unusable(path, f"its pre_tokenizer is {str(splitter)[:100]}")


def _token_ids(path: Path, model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(n) is int for n in vocabulary.values()):
        raise _unusable(path, "its vocabulary is not a table of ids by token")
    return dict(vocabulary)


def _list(path: Path, table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise _unusable(path, f"its {key} is not a list")
    return value


def _merge(path: Path, item: object, ids: Mapping[str, int]) -> str:
    parts = item.split(" ") if isinstance(item, str) else item
    match parts:
        case [str(left), str(right)] if left in ids and right in ids and left + right in ids:
            return f"{left} {right}"
        case _:
            raise _unusable(path, f"the merge {str(item)[:60]!r} does not join two tokens to one")


def _unusable(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}",
        why="text would be split into other tokens than in training, which worsens every score",
        remedy="give a byte-level BPE tokenizer that splits text as GPT-2's does, or convert the "
        "model with llama.cpp's convert_hf_to_gguf.py and give the GGUF file",
    )
