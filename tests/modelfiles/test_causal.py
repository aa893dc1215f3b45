"""Models that predict no next token are rejected wherever a header is read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.convert import hf_to_gguf
from pytest_asperf.modelfiles.gguf_read import inspect_gguf
from pytest_asperf.modelfiles.hf_sizes import inspect_hf
from pytest_asperf.modelfiles.mlx_read import inspect_mlx
from tests.modelfiles.conftest import TinyLlama
from tests.modelfiles.gguf_files import write_gguf

_T5 = {"enc.blk.0.attn_q.weight": (32, 32), "dec.blk.0.attn_q.weight": (32, 32)}
#: By architecture, metadata and tensors: the message's name for it, and the sign that it quotes.
_ENCODERS: list[tuple[dict[str, Any], str, str]] = [
    ({"arch": "bert", "keys": {"attention.causal": False}}, "an encoder", "bert.attention.causal"),
    ({"arch": "bert"}, "an encoder", "its architecture is bert"),
    ({"arch": "modern-bert"}, "an encoder", "modern-bert"),
    ({"arch": "gemma-embedding"}, "an encoder", "gemma-embedding"),
    ({"keys": {"attention.causal": False}}, "an encoder", "llama.attention.causal is false"),
    ({"keys": {"pooling_type": 1}}, "an encoder", "llama.pooling_type is 1"),
    ({"arch": "qwen3", "keys": {"pooling_type": 4}}, "an encoder", "qwen3.pooling_type is 4"),
    ({"arch": "t5", "tensors": _T5}, "an encoder-decoder", "its architecture is t5"),
    ({"arch": "t5encoder"}, "an encoder", "its architecture is t5encoder"),
    ({"tensors": _T5}, "an encoder-decoder", "enc.blk.0.attn_q.weight"),
]


@pytest.mark.parametrize(("header", "noun", "sign"), _ENCODERS)
def test_a_gguf_encoder_is_refused(
    tmp_path: Path, header: dict[str, Any], noun: str, sign: str
) -> None:
    """The message names the file, its kind, the sign in the header and the way out."""
    path = write_gguf(tmp_path / "x.gguf", **header)
    with pytest.raises(ModelError) as caught:
        inspect_gguf(path)
    assert caught.value.what.startswith(f"{path} is {noun}")
    assert sign in caught.value.what
    assert "TG, PPL" in caught.value.why
    assert "generates text" in caught.value.remedy


@pytest.mark.parametrize(
    "header",
    [
        {"keys": {"attention.causal": True}},
        {"keys": {"pooling_type": 0}},
        {"arch": "pangu-embedded"},
    ],
)
def test_a_gguf_decoder_is_read(tmp_path: Path, header: dict[str, Any]) -> None:
    """Metadata that states a default rejects nothing."""
    assert inspect_gguf(write_gguf(tmp_path / "x.gguf", **header)).n_vocab == 4


_CONFIGS: list[tuple[dict[str, Any], str, str]] = [
    ({"model_type": "bert", "architectures": ["BertModel"]}, "an encoder", "bert"),
    ({"model_type": "xlm-roberta"}, "an encoder", "xlm-roberta"),
    ({"architectures": ["NomicBertModel"]}, "an encoder", "NomicBertModel"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "an encoder", "SequenceClassification"),
    ({"architectures": ["LlamaBidirectionalModel"]}, "an encoder", "LlamaBidirectionalModel"),
    ({"architectures": ["Qwen2ForProcessRewardModel"]}, "an encoder", "Qwen2ForProcessRewardModel"),
    ({"model_type": "siglip", "architectures": ["SiglipModel"]}, "an encoder", "siglip"),
    ({"architectures": ["T5EncoderModel"], "model_type": "t5"}, "an encoder", "T5EncoderModel"),
    (
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
        "an encoder-decoder",
        "t5",
    ),
    ({"model_type": "marian", "is_encoder_decoder": True}, "an encoder-decoder", "is_encoder"),
    ({"text_config": {"is_encoder_decoder": True}}, "an encoder-decoder", "is_encoder_decoder"),
    ({"use_bidirectional_attention": True}, "an encoder", "use_bidirectional_attention is true"),
    ({"is_causal": False}, "an encoder", "is_causal is false"),
]


def _convert(folder: Path) -> None:
    hf_to_gguf(folder, folder / "x.gguf")


_READERS: tuple[Callable[[Path], object], ...] = (inspect_hf, inspect_mlx, _convert)


def _with_config(write_llama: Callable[..., TinyLlama], folder: Path, **changes: Any) -> Path:
    tiny = write_llama(folder)
    text = json.dumps({"model_type": "llama", **tiny.config, **changes})
    (folder / "config.json").write_text(text)
    return folder


@pytest.mark.parametrize(("changes", "noun", "sign"), _CONFIGS)
def test_a_folder_of_an_encoder_is_refused(
    write_llama: Callable[..., TinyLlama],
    tmp_path: Path,
    changes: dict[str, Any],
    noun: str,
    sign: str,
) -> None:
    """Every reader of a folder rejects a config.json of a model that is not causal."""
    folder = _with_config(write_llama, tmp_path / "model", **changes)
    for read in _READERS:
        with pytest.raises(ModelError) as caught:
            read(folder)
        assert caught.value.what.startswith(f"{folder / 'config.json'} is of {noun}")
        assert sign in caught.value.what


@pytest.mark.parametrize(
    "name", ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"]
)
def test_a_folder_that_pools_is_refused(
    write_llama: Callable[..., TinyLlama], tmp_path: Path, name: str
) -> None:
    """Files of Sentence Transformers' show that a causal architecture is pooled, each alone."""
    folder = _with_config(write_llama, tmp_path / "model")
    modules = [{"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(modules))
    sign = name.partition("/")[0].replace(".", r"\.")
    with pytest.raises(ModelError, match=rf"is of an encoder.*{sign}"):
        inspect_mlx(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_encoder_decoder": False, "is_decoder": False},
        {"text_config": {"use_bidirectional_attention": "vision"}},
        {"model_type": "bert", "architectures": ["BertLMHeadModel"], "is_decoder": True},
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"},
        {"architectures": None},
        {"architectures": [3], "is_encoder_decoder": "no"},
    ],
)
def test_a_folder_of_a_decoder_is_read(
    write_llama: Callable[..., TinyLlama], tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Configurations that only state a default, or nothing that is known, reject nothing."""
    assert inspect_mlx(_with_config(write_llama, tmp_path / "model", **changes)).n_params
