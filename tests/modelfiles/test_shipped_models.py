import hashlib
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

DATA = Path(str(files("pytest_asperf"))) / "data"
MODELS = DATA / "models"
NAMES = ("asperf-target", "asperf-draft")
QAT = "asperf-target-qat"
CARD = (MODELS / "MODEL_CARD.md").read_text(encoding="utf-8")
SUMS = {
    name: digest
    for digest, name in (
        line.split(maxsplit=1)
        for line in (MODELS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
}


def _read_json(name: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MODELS / name / file).read_text(encoding="utf-8"))
    return content


def _tensors(name: str) -> dict[str, dict[str, Any]]:
    with (MODELS / name / "model.safetensors").open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, dict[str, Any]] = json.loads(file.read(length))
    header.pop("__metadata__")
    return header


@pytest.mark.parametrize("name", sorted(SUMS))
def test_file_is_the_one_that_was_recorded(name: str) -> None:
    """Each shipped file has the SHA-256 of SHA256SUMS, which the card repeats."""
    assert hashlib.sha256((MODELS / name).read_bytes()).hexdigest() == SUMS[name]
    assert SUMS[name] in CARD


def test_every_weight_config_and_text_is_recorded() -> None:
    """SHA256SUMS names everything that ships with the card."""
    shipped = {p.relative_to(MODELS).as_posix() for p in MODELS.rglob("*") if p.is_file()}
    shipped -= {"MODEL_CARD.md", "SHA256SUMS"}
    assert set(SUMS) == shipped | {"../corpus/heldout.txt"}


def test_models_share_one_tokenizer() -> None:
    """Speculation and the sweep need equal ids from both models."""
    target, draft = (_read_json(name, "tokenizer.json") for name in NAMES)
    assert target == draft


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_are_those_of_the_tokenizer(name: str) -> None:
    """BOS and EOS of the config are the tokenizer's special tokens, and the vocabulary fits."""
    config, tokenizer = _read_json(name, "config.json"), _read_json(name, "tokenizer.json")
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert special == {"<|bos|>": config["bos_token_id"], "<|eos|>": config["eos_token_id"]}
    assert len(tokenizer["model"]["vocab"]) == config["vocab_size"]


@pytest.mark.parametrize("name", NAMES)
def test_k_quants_need_no_fallback(name: str) -> None:
    """Every matrix's input width is a multiple of 256, and all weights are fp16."""
    for tensor in _tensors(name).values():
        assert tensor["dtype"] == "F16"
        if len(tensor["shape"]) == 2:
            assert tensor["shape"][1] % 256 == 0


@pytest.mark.parametrize("name", NAMES)
def test_config_describes_the_weights(name: str) -> None:
    """Layers, widths and the tied head of the config are those of the tensors."""
    config, found = _read_json(name, "config.json"), _tensors(name)
    assert "lm_head.weight" not in found
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] >= 2048
    layers = {m[1] for key in found if (m := re.match(r"model\.layers\.(\d+)\.", key))}
    assert len(layers) == config["num_hidden_layers"]
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    assert found["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], hidden]
    assert found["model.layers.0.self_attn.k_proj.weight"]["shape"] == [kv_width, hidden]
    assert found["model.layers.0.mlp.down_proj.weight"]["shape"] == [hidden, ffn]


@pytest.mark.parametrize("name", NAMES)
def test_card_states_the_parameters(name: str) -> None:
    """The parameter count in the card is that of the weights, of the size promised."""
    parameters = sum(math.prod(tensor["shape"]) for tensor in _tensors(name).values())
    assert f"| `{name}` | {parameters:,} |" in CARD
    low, high = {"asperf-target": (6e6, 12e6), "asperf-draft": (0.8e6, 1.5e6)}[name]
    assert low <= parameters <= high


def _nbytes(*folders: Path) -> int:
    return sum(p.stat().st_size for f in folders for p in f.rglob("*") if p.is_file())


def test_models_and_corpus_stay_small() -> None:
    """The models in the wheel have at most 24 MB, and 8 MB for the fine-tuned one."""
    tuned = _nbytes(MODELS / QAT)
    assert _nbytes(MODELS, DATA / "corpus") - tuned <= 24_000_000
    assert tuned <= 8_000_000


@pytest.mark.parametrize("bits", [3, 4])
def test_the_tuned_target_has_what_mlx_makes_of_the_target(bits: int) -> None:
    """At one quantization both have equal bytes: packed weights, scales and biases of 64 each."""
    found, level = _tensors(f"{QAT}/{bits}bit"), f"{QAT}/{bits}bit"
    expected: dict[str, tuple[str, list[int]]] = {}
    for name, tensor in _tensors("asperf-target").items():
        shape = tensor["shape"]
        if len(shape) == 1:
            expected[name] = ("F16", shape)
            continue
        rows, columns = shape
        layer = name.removesuffix(".weight")
        expected[name] = ("U32", [rows, columns * bits // 32])
        for part in ("scales", "biases"):
            expected[f"{layer}.{part}"] = ("F16", [rows, columns // 64])
    assert {name: (t["dtype"], t["shape"]) for name, t in found.items()} == expected
    scheme = {"group_size": 64, "bits": bits, "mode": "affine"}
    quantised = {"quantization": scheme, "quantization_config": scheme}
    assert (
        _read_json(level, "config.json") == _read_json("asperf-target", "config.json") | quantised
    )
    assert _read_json(level, "tokenizer.json") == _read_json("asperf-target", "tokenizer.json")
