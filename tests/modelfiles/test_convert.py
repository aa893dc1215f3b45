import ctypes
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.convert import hf_to_gguf
from pytest_asperf.modelfiles.gguf_header import read_header
from pytest_asperf.modelfiles.gguf_read import inspect_gguf

#: Largest difference of a logit, in standard deviations of all of them: llama.cpp rounds the
#: activations to F16 before each matrix.
LOGIT_TOLERANCE = 0.03


def forward(tiny: Any, tokens: list[int], *, interleaved: bool = False) -> NDArray[np.float32]:
    """Return the logits of every position, from the definition of Llama in transformers."""
    config, weights = tiny.config, tiny.weights
    n_heads, n_kv = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // n_heads
    x = weights["model.embed_tokens.weight"][tokens]
    angles = np.outer(
        np.arange(len(tokens)),
        config["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim),
    )

    def norm(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
        return np.asarray(x / np.sqrt(mean_square + config["rms_norm_eps"]) * weights[name])

    def rotate(heads: NDArray[np.float32]) -> NDArray[np.float32]:
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        if interleaved:
            a, b = heads[..., ::2], heads[..., 1::2]
            pairs = np.stack((a * cos - b * sin, a * sin + b * cos), axis=-1)
            return pairs.reshape(heads.shape)
        a, b = np.split(heads, 2, axis=-1)
        return np.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1)

    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        h = norm(x, prefix + "input_layernorm.weight")
        q, k, v = (
            (h @ weights[f"{prefix}self_attn.{name}_proj.weight"].T).reshape(-1, heads, head_dim)
            for name, heads in (("q", n_heads), ("k", n_kv), ("v", n_kv))
        )
        q, k = rotate(q), np.repeat(rotate(k), n_heads // n_kv, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head_dim)
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
        attention = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attention /= attention.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", attention, np.repeat(v, n_heads // n_kv, axis=1))
        x = x + mixed.reshape(len(tokens), -1) @ weights[prefix + "self_attn.o_proj.weight"].T
        h = norm(x, prefix + "post_attention_layernorm.weight")
        gate = h @ weights[prefix + "mlp.gate_proj.weight"].T
        up = h @ weights[prefix + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[prefix + "mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits: NDArray[np.float32] = norm(x, "model.norm.weight") @ head.T
    return logits


@pytest.fixture
def load(llama_log: list[str]) -> Iterator[Callable[[Path], Any]]:
    """Return a function that loads a GGUF file into llama.cpp, on the CPU."""
    import llama_cpp

    models: list[Any] = []

    def run(path: Path) -> Any:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        assert model, "".join(llama_log)
        models.append(model)
        return model

    yield run
    for model in models:
        llama_cpp.llama_model_free(model)


def llama_logits(model: Any, tokens: list[int], n_vocab: int) -> NDArray[np.float32]:
    """Return llama.cpp's logits of every position."""
    import llama_cpp

    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 64, 1, 1
    params.type_k = params.type_v = 0  # F32
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    batch.n_tokens = len(tokens)
    assert llama_cpp.llama_decode(context, batch) == 0
    flat = np.ctypeslib.as_array(
        llama_cpp.llama_get_logits(context), shape=(len(tokens), n_vocab)
    ).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return flat


@pytest.mark.parametrize(
    ("dtype", "tied", "n_embd"),
    [("F16", True, 256), ("BF16", False, 256), ("F32", True, 64)],
)
def test_llama_cpp_computes_what_the_hugging_face_weights_say(
    *,
    write_llama: Callable[..., Any],
    load: Callable[[Path], Any],
    tmp_path: Path,
    dtype: str,
    tied: bool,
    n_embd: int,
) -> None:
    """The converted model gives the logits of a plain forward pass, and another rotation none."""
    tiny = write_llama(tmp_path / "hf", dtype=dtype, tied=tied, n_embd=n_embd)
    hf_to_gguf(tiny.folder, tmp_path / "tiny.gguf")
    tokens = [tiny.ids["<s>"], *np.random.default_rng(1).integers(0, 256, 30).tolist()]
    expected = forward(tiny, tokens)
    wrong = forward(tiny, tokens, interleaved=True)
    found = llama_logits(load(tmp_path / "tiny.gguf"), tokens, tiny.config["vocab_size"])
    tolerance = LOGIT_TOLERANCE * expected.std()
    assert np.abs(found - expected).max() < tolerance
    assert np.abs(wrong - expected).max() > 20 * tolerance


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the the cat", ["<s>", "the", "Ġthe", "Ġc", "at"]),
        ("thé\n", ["<s>", "th", "Ã", "©", "Ċ"]),
        ("</s>them", ["<s>", "</s>", "the", "m"]),
    ],
)
@pytest.mark.parametrize("as_pairs", [False, True])
def test_llama_cpp_splits_text_as_the_tokenizer_says(
    *,
    write_llama: Callable[..., Any],
    load: Callable[[Path], Any],
    tmp_path: Path,
    text: str,
    pieces: list[str],
    as_pairs: bool,
) -> None:
    """Merges in either form, bytes beyond ASCII, special tokens and the BOS arrive in the file."""
    import llama_cpp

    merges: tuple[object, ...] = ("t h", "th e", "Ġ the", "a t", "Ġ c")
    if as_pairs:
        merges = tuple(str(merge).split(" ") for merge in merges)
    tiny = write_llama(tmp_path / "hf", merges=merges, n_embd=64)
    hf_to_gguf(tiny.folder, tmp_path / "tiny.gguf")
    vocab = llama_cpp.llama_model_get_vocab(load(tmp_path / "tiny.gguf"))
    buffer = (ctypes.c_int32 * 64)()
    raw = text.encode()
    n = llama_cpp.llama_tokenize(vocab, raw, len(raw), buffer, len(buffer), True, True)  # noqa: FBT003
    assert buffer[:n] == [tiny.ids[piece] for piece in pieces]
    assert llama_cpp.llama_vocab_bos(vocab) == tiny.ids["<s>"]
    assert llama_cpp.llama_vocab_eos(vocab) == tiny.ids["</s>"]
    assert llama_cpp.llama_vocab_get_add_bos(vocab)


def test_the_file_states_the_model(tiny: Any, tiny_gguf: Path) -> None:
    """Sizes, quantization, head counts, context and vocabulary come out as config.json has them."""
    info = inspect_gguf(tiny_gguf)
    assert (info.architecture, info.level, info.name) == ("llama", "F16", "tiny")
    assert (info.n_layers, info.n_ctx_train, info.kv_elements) == (2, 128, (256, 256))
    assert info.n_vocab == tiny.config["vocab_size"]
    assert info.n_params == sum(weight.size for weight in tiny.weights.values())
    assert info.tied_embeddings
    with tiny_gguf.open("rb") as file:
        values = read_header(file, size=tiny_gguf.stat().st_size, path=tiny_gguf).values
    heads = [values[f"llama.attention.{name}"] for name in ("head_count", "head_count_kv")]
    assert (values["llama.embedding_length"], *heads) == (256, 4, 2)
    tokenizer = [values[f"tokenizer.ggml.{name}"] for name in ("model", "pre")]
    assert tokenizer == ["gpt2", "gpt-2"]
    norms = {t.type for t in info.tensors if "norm" in t.name}
    assert norms == {"F32"}


def test_a_folder_gives_the_same_file_twice(tiny: Any, tiny_gguf: Path, tmp_path: Path) -> None:
    """Conversion is deterministic to the byte."""
    hf_to_gguf(tiny.folder, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == tiny_gguf.read_bytes()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", None, "config.json: it cannot be read: No such file"),
        ("tokenizer.json", None, "tokenizer.json: it cannot be read: No such file"),
        ("model.safetensors", None, "model.safetensors cannot be read"),
        ("config.json", {"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ("config.json", {"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ("config.json", {"attention_bias": True}, "attention_bias"),
        ("config.json", {"hidden_size": "256"}, "hidden_size = 256 is not a positive whole number"),
        ("config.json", {"hidden_size": 512}, "has the shape"),
        ("config.json", {"num_hidden_layers": 3}, "lacks 9 tensors"),
        ("config.json", {"num_hidden_layers": 1}, "has, beyond config.json, 9 tensors"),
        ("config.json", {"tie_word_embeddings": False}, "lacks 1 tensors: lm_head.weight"),
        ("config.json", {"num_key_value_heads": 3}, "4 heads"),
        ("config.json", {"bos_token_id": 10**6}, "bos_token_id = 1000000 is not a token"),
        ("tokenizer.json", {"added_tokens": [{"content": "x", "id": 999}]}, "numbers below 264"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Metaspace"}}, "Metaspace"),
        ("tokenizer.json", {"normalizer": {"type": "NFC"}}, "normalizer"),
        ("tokenizer.json", {"model": {"type": "Unigram"}}, "not a BPE tokenizer"),
        ("tokenizer.json", {"added_tokens": [{"content": "x"}]}, "no id"),
        ("tokenizer.json", {"added_tokens": [{"content": "x", "id": 0}]}, "not distinct"),
        ("tokenizer.json", {"model": {"vocab": {"a": 0}, "merges": ["a b"]}}, "merge 'a b'"),
        ("tokenizer.json", {"model": {"vocab": {"a": 0}, "merges": 3}}, "merges is not a list"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(
    write_llama: Callable[..., Any],
    tmp_path: Path,
    file: str,
    change: dict[str, Any] | None,
    message: str,
) -> None:
    """Each missing, foreign or contradictory file is an error that names it and the reason."""
    folder = write_llama(tmp_path / "hf", n_embd=64).folder
    if change is None:
        (folder / file).unlink()
    else:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | change))
    with pytest.raises(ModelError) as caught:
        hf_to_gguf(folder, tmp_path / "out.gguf")
    assert message in caught.value.what
    assert file in caught.value.what or "model.safetensors" in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_broken_json_is_refused(
    write_llama: Callable[..., Any], tmp_path: Path, file: str, text: bytes
) -> None:
    """A file that is no JSON table is named, for any content."""
    folder = write_llama(tmp_path / "hf", n_embd=64).folder
    (folder / file).write_bytes(text)
    with pytest.raises(ModelError, match=f"{file}: it is not"):
        hf_to_gguf(folder, tmp_path / "out.gguf")


def test_weights_that_f16_cannot_hold_are_refused(
    write_llama: Callable[..., Any], tmp_path: Path
) -> None:
    """A number beyond 65,504 would silently become infinite."""
    tiny = write_llama(tmp_path / "hf", n_embd=64, dtype="F32")
    path = tiny.folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start : start + 4] = np.float32(1e6).tobytes()
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"embed_tokens.weight has numbers too large"):
        hf_to_gguf(tiny.folder, tmp_path / "out.gguf")
