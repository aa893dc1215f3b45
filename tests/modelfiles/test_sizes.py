"""The predicted memory of a model, compared with the files that are made and their memory."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engines import LLAMA_FTYPES, PUBLISHED_FTYPES
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.gguf_read import bytes_per_token, inspect_gguf
from pytest_asperf.modelfiles.hf_sizes import inspect_hf
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.sizes import BITS_PER_WEIGHT, KvCache, demand_of

_, DRAFT, _ = shipped_models()
D, FF, VOCAB = 64, 96, 1000
Shapes = dict[str, tuple[int, ...]]


def layer(number: int, **more: tuple[int, ...]) -> Shapes:
    """Return a layer of 4 query heads and 2 K and V heads of 16 elements."""
    names = {
        "self_attn.q_proj": (64, D),
        "self_attn.k_proj": (32, D),
        "self_attn.v_proj": (32, D),
        "self_attn.o_proj": (D, 64),
        "input_layernorm": (D,),
        **{name.replace("__", "."): shape for name, shape in more.items()},
    }
    return {f"model.layers.{number}.{name}.weight": shape for name, shape in names.items()}


ATTENTION = 64 * D + 32 * D + 32 * D + D * 64
TABLE: Shapes = {"model.embed_tokens.weight": (VOCAB, D)}
HEAD: Shapes = {"lm_head.weight": (VOCAB, D)}


def write_part(path: Path, shapes: Shapes) -> None:
    """Write weights of F16 that are a hole in the file: only their header has disk space."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write_folder(folder: Path, shapes: Shapes, **config: Any) -> Path:
    """Write a folder in Hugging Face format."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_part(folder / "model.safetensors", shapes)
    return folder


def of_folder(folder: Path, level: str | None = None, kv: KvCache | None = None) -> Any:
    """Return the demand of a folder."""
    return demand_of(ModelRef(ModelSpec("m", hf_folder=folder), level), kv or KvCache())


def test_a_folder_at_f16_asks_what_its_file_does(draft: Callable[[str], Path]) -> None:
    """All that is counted from names and shapes agrees with the converted file's tensor list."""
    folder = demand_of(ModelRef(DRAFT), KvCache(512, (34 / 32, 2.0)))
    file = demand_of(ModelRef(ModelSpec("m", gguf=draft("F16"))), KvCache(512, (34 / 32, 2.0)))
    for told in ("weights_bytes", "kv_bytes", "read_bytes", "context", "n_ctx_train"):
        assert getattr(folder, told) == getattr(file, told), told
    assert not folder.has_experts
    assert folder.window is None


@pytest.mark.parametrize("bound", [("Q8_0", 0.001), ("Q6_K", 0.03), ("Q4_K_M", 0.1)])
def test_a_level_is_estimated_near_the_file_that_is_made(
    tiny: Any,
    tiny_gguf: Path,
    tmp_path: Path,
    quantize: Callable[[Path, Path, str], None],
    bound: tuple[str, float],
) -> None:
    """From the folder and from the F16 file alike, and exactly for a quantization of one type."""
    level, within = bound
    quantize(tiny_gguf, tmp_path / "made.gguf", level)
    made = demand_of(ModelRef(ModelSpec("m", gguf=tmp_path / "made.gguf")), KvCache())
    assert made.basis.startswith("tensor list")
    sources = (ModelSpec("m", hf_folder=tiny.folder), ModelSpec("m", gguf=tiny_gguf))
    for spec in sources:
        told = demand_of(ModelRef(spec, level), KvCache())
        assert told.basis.startswith("estimated")
        assert told.weights_bytes == pytest.approx(made.weights_bytes, rel=within)
        assert told.read_bytes == pytest.approx(made.read_bytes, rel=within)


def test_the_kv_cache_is_what_the_engine_allocates(tiny_gguf: Path, llama_log: list[str]) -> None:
    """llama.cpp logs the same size for the same context and types."""
    import llama_cpp

    model = llama_cpp.llama_model_load_from_file(
        os.fsencode(tiny_gguf), llama_cpp.llama_model_default_params()
    )
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.type_k = 512, 8  # GGML_TYPE_Q8_0
    context = llama_cpp.llama_init_from_model(model, params)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    logged = re.search(r"KV buffer size = +([\d.]+) MiB", "".join(llama_log))
    assert logged is not None
    told = demand_of(
        ModelRef(ModelSpec("m", gguf=tiny_gguf)), KvCache(512, (34 / 32, 2.0))
    ).kv_bytes
    assert told / 2**20 == pytest.approx(float(logged[1]), abs=0.01)


def test_only_active_experts_are_read(tmp_path: Path) -> None:
    """All experts lie in memory; of eight, two are read for one token."""
    experts: Shapes = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": (FF, D) for n in range(8)}
    shapes = {**TABLE, **HEAD, **layer(0, mlp__gate=(8, D)), **experts}
    folder = write_folder(tmp_path / "m", shapes, num_local_experts=8, num_experts_per_tok=2)
    demand = of_folder(folder)
    rest = ATTENTION + 8 * D
    assert demand.has_experts
    assert demand.weights_bytes == 2 * (2 * VOCAB * D + rest + 8 * FF * D) + 4 * D
    assert demand.read_bytes[0] == 2 * (VOCAB * D + rest + 2 * FF * D) + 4 * D


@pytest.mark.parametrize(
    ("shapes", "config", "heads_in_memory"),
    [
        ({**TABLE, **HEAD}, {"tie_word_embeddings": False}, 2),
        ({**TABLE, **HEAD}, {"tie_word_embeddings": True}, 1),
        (TABLE, {}, 1),
    ],
    ids=["untied", "tied-stored-twice", "tied-by-absence"],
)
def test_a_tied_table_is_read_and_an_untied_one_is_not(
    tmp_path: Path, shapes: Shapes, config: dict[str, Any], heads_in_memory: int
) -> None:
    """One table of the vocabulary is read for every token."""
    demand = of_folder(write_folder(tmp_path / "m", {**shapes, **layer(0)}, **config))
    assert demand.weights_bytes == 2 * (heads_in_memory * VOCAB * D + ATTENTION) + 4 * D
    assert demand.read_bytes[0] == 2 * (VOCAB * D + ATTENTION) + 4 * D


def test_layers_with_a_state_keep_no_kv_cache(tmp_path: Path) -> None:
    """Only layers with a K matrix count in a hybrid model, for any number of layers is."""
    state: Shapes = {"model.layers.0.linear_attn.in_proj_qkvz.weight": (128, D)}
    demand = of_folder(
        write_folder(tmp_path / "m", {**TABLE, **state, **layer(1)}, num_hidden_layers=2),
        kv=KvCache(100),
    )
    assert demand.is_recurrent
    assert demand.kv_bytes == 100 * (32 + 32) * 2


def test_layers_that_differ_are_counted_as_they_are(tmp_path: Path) -> None:
    """K and V come from each layer's own matrices; without one for V, K is cached twice."""
    wide = {"model.layers.1.self_attn.k_proj.weight": (128, D)}
    demand = of_folder(write_folder(tmp_path / "m", {**TABLE, **layer(0), **wide}), kv=KvCache(1))
    assert demand.kv_bytes == (32 + 128) * 2 * 2


@pytest.mark.parametrize(
    ("name", "rows", "elements"),
    [("qkv_proj", 64 + 32 + 32, 64), ("kv_a_proj_with_mqa", 72, 72)],
)
def test_fused_and_latent_attention(tmp_path: Path, name: str, rows: int, elements: int) -> None:
    """A fused matrix is split by the configuration; a latent one is cached once."""
    shapes: Shapes = {**TABLE, f"model.layers.0.self_attn.{name}.weight": (rows, D)}
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": D}
    demand = of_folder(write_folder(tmp_path / "m", shapes, **config), kv=KvCache(1))
    assert demand.kv_bytes == elements * 2


@pytest.mark.parametrize(("use", "window"), [(True, 10), (False, None)])
def test_a_window_bounds_what_is_read_and_not_what_is_kept(
    tmp_path: Path, *, use: bool, window: int | None
) -> None:
    """The layers that have it are unknown, so each figure errs to its safe direction."""
    config = {"sliding_window": 10, "use_sliding_window": use}
    demand = of_folder(write_folder(tmp_path / "m", {**TABLE, **layer(0)}, **config))
    row = (32 + 32) * 2
    assert demand.kv_bytes == 4096 * row
    assert demand.read_bytes[1] - demand.read_bytes[0] == (window or 4096) * row
    assert demand.window == window


def test_parts_and_towers(tmp_path: Path) -> None:
    """A model in parts is the sum of them, and parts that decode no text are left out."""
    folder = write_folder(tmp_path / "m", TABLE, text_config={"max_position_embeddings": 100})
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    tower: Shapes = {"model.visual.blocks.0.attn.qkv.weight": (300, 100)}
    write_part(folder / "model-2.safetensors", {**layer(0), **tower})
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sizes = inspect_hf(folder)
    assert (sizes.matrices, sizes.vectors) == (VOCAB * D + ATTENTION, D)
    assert of_folder(folder).context == 100


@pytest.mark.parametrize(
    ("shapes", "config", "message"),
    [
        (layer(0), {}, "not named as transformers names them"),
        (TABLE, {}, "none of its layers has a K matrix"),
        (
            {**TABLE, **layer(0), "model.layers.0.mlp.experts.0.up_proj.weight": (FF, D)},
            {},
            "states none of num_experts_per_tok",
        ),
    ],
)
def test_what_cannot_be_told_is_refused(
    tmp_path: Path, shapes: Shapes, config: dict[str, Any], message: str
) -> None:
    """A guess would look like a figure."""
    with pytest.raises(ModelError, match=message):
        of_folder(write_folder(tmp_path / "m", shapes, **config))


@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\x", ""])
def test_a_part_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """The index is an external file."""
    folder = write_folder(tmp_path / "m", {**TABLE, **layer(0)})
    index = {"weight_map": {"a": name} if name else {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="names no files in its folder"):
        of_folder(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_broken_configuration_is_refused(tmp_path: Path, text: str) -> None:
    """The file is named."""
    folder = write_folder(tmp_path / "m", TABLE)
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json: it is not"):
        of_folder(folder)


def test_a_quantised_file_is_no_source_of_another_level(draft: Callable[[str], Path]) -> None:
    """A file that could not be made is not predicted either."""
    with pytest.raises(ModelError, match="Q4_0 cannot be made from it"):
        demand_of(ModelRef(ModelSpec("m", gguf=draft("Q8_0")), "Q4_0"), KvCache())


def test_published_files_are_read_as_they_are(draft: Callable[[str], Path]) -> None:
    """By quantization; the file's own, by its metadata, is no estimate."""
    path = draft("Q8_0")
    info = inspect_gguf(path)
    specs = (ModelSpec("m", files=(("Q8_0", path),)), ModelSpec("m", gguf=path))
    for spec in specs:
        demand = demand_of(ModelRef(spec, "Q8_0"), KvCache(64))
        assert demand.basis == f"tensor list of {path}"
        assert demand.read_bytes == (bytes_per_token(info), bytes_per_token(info, depth=64))
        assert demand.tokenizer_sha256 == info.tokenizer_sha256


def test_every_level_has_its_bits() -> None:
    """A quantization that can be requested can be estimated."""
    assert BITS_PER_WEIGHT.keys() == LLAMA_FTYPES.keys() | PUBLISHED_FTYPES.keys()
