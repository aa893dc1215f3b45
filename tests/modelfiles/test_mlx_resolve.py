"""Folders that MLX measures: their headers, made quantizations, and errors."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engines import level_recipe
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.cache import entries
from pytest_asperf.modelfiles.hub_cache import hf_source, hub_folder
from pytest_asperf.modelfiles.mlx_read import MlxInfo, inspect_mlx, mlx_bytes_per_token
from pytest_asperf.modelfiles.mlx_resolve import resolve_mlx
from pytest_asperf.modelfiles.variants import Quantize

Find = Callable[..., MlxInfo]


def refuse(_source: Path, _target: Path, level: str) -> None:
    """Fail if nothing should be made."""
    raise AssertionError(f"made {level}")


def copied(source: Path, target: Path, _level: str) -> None:
    """Pretend to have made a quantization, and change nothing."""
    shutil.copytree(source, target)


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Return `resolve_mlx` with a cache of this test."""

    def run(spec: ModelSpec, level: str | None, quantize: Quantize = refuse) -> MlxInfo:
        return resolve_mlx(
            ModelRef(spec, level),
            cache=tmp_path / "cache",
            quantize=quantize,
            quantizer_id=lambda: "build-1",
        )

    return run


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be changed."""
    return Path(shutil.copytree(tiny.folder, tmp_path / "hf"))


def change(folder: Path, **keys: Any) -> None:
    """Change keys of a folder's configuration; None removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@pytest.fixture(scope="module")
def made(mlx: EngineBuild, tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model at 4 bits, made by mlx-lm."""
    target = tmp_path_factory.mktemp("mlx") / "4bit"
    with Worker(mlx) as worker:
        worker.quantize(tiny.folder, target, level_recipe("4bit", "mlx"))
    return target


def test_a_folder_says_its_level(tiny: Any, made: Path) -> None:
    """A type if nothing is quantized, bits and group size if it is; the tokenizer stays."""
    plain, quantised = inspect_mlx(tiny.folder), inspect_mlx(made)
    assert (plain.level, plain.is_quantised) == ("F16", False)
    assert (quantised.level, quantised.is_quantised) == ("4bit", True)
    assert quantised.tokenizer_sha256 == plain.tokenizer_sha256
    assert quantised.nbytes == (made / "model.safetensors").stat().st_size


def test_bytes_of_a_step_are_counted_from_the_files(tiny: Any, made: Path) -> None:
    """All of a tied model's weights, in the type computed in, and the cache at its depth."""
    n_weights = sum(weight.size for weight in tiny.weights.values())
    row = 2 * 2 * 64  # layers, KV heads, elements of a head
    plain = inspect_mlx(tiny.folder)

    def count(info: MlxInfo, depth: int, float_bytes: float) -> int | None:
        sizes = (float_bytes, float_bytes)
        return mlx_bytes_per_token(
            info, depth=depth, kv_bytes_per_element=sizes, float_bytes=float_bytes
        )

    assert count(plain, 0, 2.0) == 2 * n_weights
    assert count(plain, 0, 4.0) == 4 * n_weights
    assert count(plain, 10, 2.0) == 2 * n_weights + 10 * 2 * 2 * row
    # 4 bits and two numbers of 16 bits for 64 weights; norms are not quantized.
    n_norms = sum(weight.size for weight in tiny.weights.values() if weight.ndim == 1)
    quantised = count(inspect_mlx(made), 0, 2.0)
    assert quantised == (n_weights - n_norms) * 4.5 / 8 + 2 * n_norms


def test_experts_that_are_not_asked_are_not_read(folder: Path) -> None:
    """Two of eight experts are read, and next to nothing of an untied embedding table."""
    shapes = {
        "model.embed_tokens.weight": [1000, 8],
        "lm_head.weight": [1000, 8],
        "model.layers.0.mlp.switch_mlp.up_proj.weight": [8, 16, 8],
        "model.layers.0.mlp.gate.weight": [8, 8],
        "model.layers.0.self_attn.k_proj.weight": [4, 8],
    }
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(end)
    (folder / "model.safetensors").write_bytes(content)
    change(folder, num_experts=8, num_experts_per_tok=2, tie_word_embeddings=False)
    assert _bytes(inspect_mlx(folder)) == 2 * (8000 + 2 * 16 * 8 + 64 + 32)


def test_a_cache_of_unknown_size_is_not_guessed(folder: Path) -> None:
    """If no K matrix is found under its name, there are no bytes per token."""
    assert _bytes(inspect_mlx(folder)) is not None
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"self_attn.k_proj", b"self_attn.kk_prj"))
    assert _bytes(inspect_mlx(folder)) is None


def _bytes(info: MlxInfo) -> int | None:
    return mlx_bytes_per_token(info, depth=0, kv_bytes_per_element=(2.0, 2.0), float_bytes=2.0)


def test_a_level_is_made_once_and_recorded(
    find: Find, tiny: Any, made: Path, tmp_path: Path
) -> None:
    """The folder is in the cache whole, under a name that a person can read."""
    spec = ModelSpec("tiny", hf_folder=tiny.folder)

    def quantize(source: Path, target: Path, level: str) -> None:
        assert (source, level) == (tiny.folder, "4bit")
        shutil.copytree(made, target)

    info = find(spec, "4bit", quantize)
    assert info.path.name.startswith("tiny-4bit-")
    assert find(spec, "4bit") == info
    (entry,) = entries(tmp_path / "cache", full=True)
    assert (entry.path, entry.problem, entry.recipe["level"]) == (info.path, None, "4bit")
    (info.path / "config.json").write_text("{}")
    (entry,) = entries(tmp_path / "cache")
    assert entry.problem is not None
    assert find(spec, "4bit", quantize).level == "4bit"


def test_a_folder_is_used_as_it_is(find: Find, tiny: Any) -> None:
    """Without a quantization, or at its own, nothing is made."""
    spec = ModelSpec("tiny", hf_folder=tiny.folder)
    assert find(spec, None).path == tiny.folder
    assert find(spec, "F16").path == tiny.folder


def test_a_quantised_folder_is_not_quantised_again(find: Find, made: Path) -> None:
    """8 bits made of 4 would have the losses of 4."""
    with pytest.raises(ModelError, match="8bit cannot be made from it, it is 4bit already"):
        find(ModelSpec("m", hf_folder=made), "8bit")


@pytest.mark.parametrize(("level", "told"), [("4bit", "is F16 .* not 4bit"), ("4bit-g48", "rows")])
def test_a_level_that_was_not_made_is_found_out(
    find: Find, tiny: Any, tmp_path: Path, level: str, told: str
) -> None:
    """An unquantized model is not measured under a quantization's name."""
    with pytest.raises(ModelError, match=told):
        find(ModelSpec("m", hf_folder=tiny.folder), level, copied)
    assert entries(tmp_path / "cache") == ()


def test_published_folders_are_used_as_they_are(find: Find, tiny: Any, made: Path) -> None:
    """Each under its own quantization, and none under another's."""
    spec = ModelSpec("m", files=(("F16", tiny.folder), ("4bit", made)))
    assert find(spec, "4bit").path == made
    with pytest.raises(ModelError, match="no file at 8bit"):
        find(spec, "8bit")
    with pytest.raises(ModelError, match="is 4bit by its own configuration, not 6bit"):
        find(ModelSpec("m", files=(("6bit", made),)), "6bit")


def test_gguf_is_refused_with_the_reason(find: Find, tiny_gguf: Path) -> None:
    """MLX would cast most of its quantizations to F16."""
    with pytest.raises(ModelError, match="is a file, and MLX measures folders") as caught:
        find(ModelSpec("m", gguf=tiny_gguf), None)
    assert "casts most to F16" in caught.value.why
    assert "engine = llama_cpp" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", None, "config.json cannot be read: No such file"),
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b"[]", "not a JSON table"),
        ("config.json", b"{}", "names no model_type"),
        ("model.safetensors", None, "it has no weights"),
        ("model.safetensors", b"", "truncated|claims"),
        ("model.safetensors", b"\2\0\0\0\0\0\0\0{}", "has no tensor"),
        ("tokenizer.json", None, "has no tokenizer"),
        ("tokenizer.json", b"{}", "it has no vocabulary"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    folder: Path, name: str, content: bytes | None, told: str
) -> None:
    """The file is named."""
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=told) as caught:
        inspect_mlx(folder)
    assert str(folder) in caught.value.what


def test_a_cut_off_file_is_truncated(folder: Path) -> None:
    """The header alone shows that bytes are missing."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="truncated"):
        inspect_mlx(folder)


def test_a_hub_model_is_taken_from_the_local_cache(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its branch `main`; a folder of that name comes first; nothing is downloaded."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    spec = ModelSpec("tiny", hf_folder=tmp_path / "owner/tiny", hub_id="owner/tiny")
    with pytest.raises(ModelError, match="nor in the local Hugging Face cache") as caught:
        hf_source(spec, tmp_path / "owner/tiny")
    assert "hf download owner/tiny" in caught.value.remedy
    repository = tmp_path / "models--owner--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123\n")
    snapshot = repository / "snapshots" / "abc123"
    shutil.copytree(tiny.folder, snapshot)
    assert hf_source(spec, tmp_path / "owner/tiny") == snapshot
    assert hf_source(spec, tiny.folder) == tiny.folder


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HF_HUB_CACHE": "/h", "HF_HOME": "/x"}, "/h"),
        ({"HF_HOME": "/x"}, "/x/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, str(Path("~/.cache/huggingface/hub").expanduser())),
    ],
)
def test_the_hubs_cache_is_where_its_own_library_has_it(env: dict[str, str], folder: str) -> None:
    """The variables of huggingface_hub decide, the narrower one first."""
    assert hub_folder(env) == Path(folder)
