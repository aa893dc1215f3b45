"""Headers distinguish the quantizations of one model from files of another one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.modelfiles.gguf_read import inspect_gguf
from pytest_asperf.modelfiles.mlx_read import inspect_mlx
from pytest_asperf.modelfiles.model_shape import shape_difference
from tests.modelfiles.conftest import TinyLlama
from tests.modelfiles.gguf_files import write_gguf

_BASE = {"feed_forward_length": 64, "attention.head_count_kv": 2}


def _told(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> str:
    files = [
        inspect_gguf(write_gguf(tmp_path / f"{number}.gguf", **header))
        for number, header in enumerate((one, other))
    ]
    return shape_difference(*(file.shape for file in files))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"arch": "qwen2"}, "architecture llama against qwen2"),
        ({"keys": _BASE | {"block_count": 3}}, "layers 2 against 3"),
        ({"keys": _BASE | {"embedding_length": 64}}, "embedding width 32 against 64"),
        ({"keys": _BASE | {"attention.head_count": 8}}, "heads 4 against 8"),
        ({"keys": _BASE | {"attention.head_count_kv": 4}}, "KV heads 2 against 4"),
        ({"keys": _BASE | {"feed_forward_length": 128}}, "feed-forward width 64 against 128"),
        (
            {"keys": _BASE, "tokenizer": ([f"t{n}" for n in range(999)], [], "gpt-2")},
            "vocabulary 4 against 999",
        ),
        ({"keys": _BASE | {"rope.freq_base": 500_000}}, "rope.freq_base 10000 against 500000"),
        ({"keys": _BASE | {"rope.scaling.factor": 4}}, "rope.scaling.factor 1 against 4"),
        (
            {"keys": _BASE | {"attention.key_length": 8, "rope.dimension_count": 4}},
            "rope.dimension_count 8 against 4",
        ),
        (
            {"keys": _BASE | {"expert_count": 8, "expert_used_count": 4}},
            "expert_used_count 2 against 4",
        ),
        ({"keys": _BASE | {"a_key_of_2027": "b"}}, "a_key_of_2027 a against b"),
    ],
)
def test_another_model_differs(tmp_path: Path, other: dict[str, Any], told: str) -> None:
    """Each size that a quantization leaves unchanged distinguishes two models, and is named."""
    rules = {"rope.dimension_count": 8, "expert_count": 8, "expert_used_count": 2}
    base = _BASE | rules | {"a_key_of_2027": "a"}
    found = _told(tmp_path, {"keys": base}, {"keys": base, **other})
    assert told in found


@pytest.mark.parametrize(
    "other",
    [
        {"keys": _BASE | {"general.file_type": 7, "general.name": "another name"}},
        {"keys": _BASE | {"context_length": 4096}},
        {"keys": {"attention.head_count_kv": 2}},
        {"keys": _BASE | {"feed_forward_length": [64, 32]}},
        # A converter that adds a head, or keeps it tied, and one that pads the vocabulary.
        {"tensors": {"token_embd.weight": (4, 32), "output.weight": (4, 32)}},
        {"tokenizer": ([*"abcd", *(f"[PAD{n}]" for n in range(60))], [], "gpt-2")},
        # A layer for multi-token prediction that some files leave out.
        {"keys": _BASE | {"block_count": 3, "nextn_predict_layers": 1}},
        # Latent attention is stored with one shared K head by newer converters.
        {"keys": _BASE | {"attention.head_count_kv": 1, "attention.kv_lora_rank": 8}},
    ],
)
def test_a_level_of_the_model_does_not(tmp_path: Path, other: dict[str, Any]) -> None:
    """A change that converters and quantizers may make makes no other model."""
    assert not _told(tmp_path, {"keys": _BASE}, {"keys": _BASE, **other})


def test_a_folder_and_a_file_of_one_model_agree(tiny: TinyLlama, tiny_gguf: Path) -> None:
    """Formats name architectures differently, so sizes alone are compared between them."""
    folder, file = inspect_mlx(tiny.folder).shape, inspect_gguf(tiny_gguf).shape
    assert not shape_difference(folder, file)
    assert not shape_difference(file, folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_hidden_layers": 3}, "layers 2 against 3"),
        ({"hidden_size": 512}, "embedding width 256 against 512"),
        ({"num_attention_heads": 8}, "heads 4 against 8"),
        ({"rope_theta": 5e5}, "rope.freq_base 5000 against 500000"),
        ({"rms_norm_eps": 1e-6}, "attention.layer_norm_rms_epsilon 1e-05 against 1e-06"),
    ],
)
def test_a_folder_of_another_model_differs_from_a_file(
    write_llama: Callable[..., TinyLlama],
    tiny_gguf: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    told: str,
) -> None:
    """The sizes of config.json are compared with those of GGUF metadata."""
    other = write_llama(tmp_path / "other")
    config = {"model_type": "llama", **other.config, **changes}
    (other.folder / "config.json").write_text(json.dumps(config))
    shape = inspect_mlx(other.folder).shape
    assert shape_difference(inspect_gguf(tiny_gguf).shape, shape) == told
    assert shape_difference(inspect_mlx(tmp_path / "other").shape, shape) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rope_parameters": {"rope_theta": 5e5}}, "rope.freq_base 5000 against 500000"),
        ({"rope_scaling": {"factor": 4.0}}, "rope_scaling.factor 1 against 4"),
        ({"head_dim": 32}, "head_dim 64 against 32"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 5e3}}, "rope_theta": None}, ""),
        ({"use_sliding_window": False, "sliding_window": 1024}, ""),
        ({"torch_dtype": "float16", "max_position_embeddings": 4096}, ""),
    ],
)
def test_folders_differ_in_what_a_model_computes_with(
    write_llama: Callable[..., TinyLlama], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """Values that decide a model's answers distinguish folders; others do not."""
    shapes = []
    for name, more in (("a", {}), ("b", changes)):
        tiny = write_llama(tmp_path / name)
        config = {
            "model_type": "llama",
            **tiny.config,
            "head_dim": 64,
            "sliding_window": 512,
            **more,
        }
        (tiny.folder / "config.json").write_text(json.dumps(config))
        shapes.append(inspect_mlx(tiny.folder).shape)
    assert shape_difference(*shapes) == told


def test_names_of_other_configurations(
    write_llama: Callable[..., TinyLlama], tmp_path: Path
) -> None:
    """GPT-2 calls its sizes otherwise, and a multimodal model keeps them in a table of its own."""
    names = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
    shapes = []
    nested = {"text_config": {**names, "model_type": "gpt2_text"}}
    for name, config in (("a", names | {"model_type": "gpt2_text"}), ("b", nested), ("c", {})):
        folder = write_llama(tmp_path / name).folder
        (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **config}))
        shapes.append(inspect_mlx(folder).shape)
    assert (shapes[0].n_layers, shapes[0].n_embd, shapes[0].n_heads) == (12, 768, 12)
    assert not shape_difference(shapes[0], shapes[1])
    assert shape_difference(shapes[0], shapes[2]) == "architecture gpt2_text against gpt2"
