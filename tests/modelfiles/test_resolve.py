import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engines import LLAMA_FTYPES, level_recipe
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.cache import entries
from pytest_asperf.modelfiles.convert import hf_to_gguf
from pytest_asperf.modelfiles.gguf_read import inspect_gguf
from pytest_asperf.modelfiles.levels import contradiction, fallback_text, require_quantizable
from pytest_asperf.modelfiles.resolve import resolve
from pytest_asperf.modelfiles.sizes import _at_level
from pytest_asperf.modelfiles.variants import Quantize


def refuse(_source: Path, _target: Path, level: str) -> None:
    """Fail if nothing should be quantized."""
    raise AssertionError(f"quantized to {level}")


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Path]:
    """Return `resolve` with a cache of this test."""

    def run(
        spec: ModelSpec, level: str | None, quantize: Quantize = refuse, build: str = "build-1"
    ) -> Path:
        ref = ModelRef(spec=spec, level=level)
        return resolve(ref, cache=tmp_path / "cache", quantize=quantize, quantizer_id=lambda: build)

    return run


def test_a_hugging_face_folder_becomes_f16_and_then_levels(
    find: Callable[..., Path], tiny: Any, tmp_path: Path, quantize: Quantize
) -> None:
    """Each file is made once, matches its name, and records its source."""
    spec = ModelSpec(name="tiny/model", hf_folder=tiny.folder)
    f16 = find(spec, None)
    assert f16.name.startswith("tiny_model-F16-")
    assert find(spec, "F16") == f16
    q4 = find(spec, "Q4_K_M", quantize)
    assert inspect_gguf(q4).level == "Q4_K_M"
    assert {t.type for t in inspect_gguf(q4).tensors} == {"F32", "Q4_K", "Q6_K"}
    assert find(spec, "Q4_K_M") == q4
    made = {entry.recipe["level"]: entry for entry in entries(tmp_path / "cache", full=True)}
    assert {level: entry.problem for level, entry in made.items()} == {"F16": None, "Q4_K_M": None}
    assert made["Q4_K_M"].recipe["source_sha256"] == made["F16"].sha256
    assert made["Q4_K_M"].recipe["quantizer"] == "build-1"


def test_another_quantiser_or_other_weights_make_another_file(
    find: Callable[..., Path], write_llama: Callable[..., Any], tmp_path: Path, quantize: Quantize
) -> None:
    """Neither a new llama.cpp nor a retrained model is answered with the old file."""
    folder = write_llama(tmp_path / "hf").folder
    spec = ModelSpec(name="m", hf_folder=folder)
    first = find(spec, "Q8_0", quantize)
    assert find(spec, "Q8_0", quantize, "build-2") != first
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2] + b"\0\0")
    assert find(spec, "Q8_0", quantize) != first


def test_a_gguf_file_stands_for_its_own_level(
    find: Callable[..., Path], tiny_gguf: Path, tmp_path: Path, quantize: Quantize
) -> None:
    """Without a quantization, or at its own, the given file is used, and no other is made."""
    spec = ModelSpec(name="m", gguf=tiny_gguf)
    assert find(spec, None) == tiny_gguf
    assert find(spec, "F16") == tiny_gguf
    assert not (tmp_path / "cache").exists()
    assert inspect_gguf(find(spec, "Q8_0", quantize)).level == "Q8_0"


def test_a_quantised_file_is_not_quantised_again(
    find: Callable[..., Path], tiny_gguf: Path, tmp_path: Path, quantize: Quantize
) -> None:
    """Q4_K_M to Q8_0 would be measured as Q8_0 with the losses of Q4_K_M."""
    quantize(tiny_gguf, tmp_path / "q4.gguf", "Q4_K_M")
    with pytest.raises(ModelError, match=r"Q8_0 cannot be made from it, it is Q4_K_M already") as e:
        find(ModelSpec(name="m", gguf=tmp_path / "q4.gguf"), "Q8_0")
    assert "files" in e.value.remedy


def test_published_files_are_used_as_they_are(
    find: Callable[..., Path], tiny_gguf: Path, tmp_path: Path, quantize: Quantize
) -> None:
    """An unpublished quantization is an error that lists the published ones."""
    quantize(tiny_gguf, tmp_path / "q8.gguf", "Q8_0")
    spec = ModelSpec(name="m", files=(("F16", tiny_gguf), ("Q8_0", tmp_path / "q8.gguf")))
    assert find(spec, "Q8_0") == tmp_path / "q8.gguf"
    with pytest.raises(ModelError, match="no file at Q6_K") as caught:
        find(spec, "Q6_K")
    assert "use one of F16, Q8_0, as in m:F16" in caught.value.remedy
    with pytest.raises(ModelError, match="has several files: name one"):
        find(spec, None)
    assert find(ModelSpec(name="m", files=(("F16", tiny_gguf),)), None) == tiny_gguf


def test_a_file_under_a_wrong_level_is_refused(find: Callable[..., Path], tiny_gguf: Path) -> None:
    """The file's own metadata wins over the catalogue."""
    spec = ModelSpec(name="m", files=(("Q8_0", tiny_gguf),))
    with pytest.raises(ModelError, match="is F16 by its own metadata, not Q8_0"):
        find(spec, "Q8_0")


def test_a_quantiser_that_makes_another_level_is_found_out(
    find: Callable[..., Path], tiny_gguf: Path
) -> None:
    """A result that differs from the request never enters the cache."""

    def copy(source: Path, target: Path, _level: str) -> None:
        shutil.copy(source, target)

    spec = ModelSpec(name="m", gguf=tiny_gguf)
    for _ in range(2):
        with pytest.raises(ModelError, match="is F16 by its own metadata, not Q8_0"):
            find(spec, "Q8_0", copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_is_not_whole_is_refused(
    find: Callable[..., Path], tiny: Any, tmp_path: Path, name: str
) -> None:
    """The missing file is named."""
    shutil.copytree(tiny.folder, tmp_path / "hf")
    (tmp_path / "hf" / name).unlink()
    with pytest.raises(ModelError, match=f"{name} cannot be read: No such file"):
        find(ModelSpec(name="m", hf_folder=tmp_path / "hf"), None)


def test_a_model_without_a_source_is_refused(find: Callable[..., Path]) -> None:
    """A specification that names nothing is an error and not a crash."""
    with pytest.raises(ModelError, match="'m' has no source"):
        find(ModelSpec(name="m"), None)


@pytest.mark.parametrize("level", LLAMA_FTYPES)
def test_what_is_refused_beforehand_is_what_llama_cpp_refuses(
    tiny_gguf: Path, tmp_path: Path, quantize: Quantize, level: str
) -> None:
    """For rows of 256 elements llama.cpp either makes every quantization or both reject it."""
    try:
        require_quantizable(inspect_gguf(tiny_gguf), level)
    except ModelError as error:
        assert "importance matrix" in error.what  # noqa: PT017  # the other branch is as good
        with pytest.raises(RuntimeError, match="requires an im"):
            quantize(tiny_gguf, tmp_path / "out.gguf", level)
    else:
        quantize(tiny_gguf, tmp_path / "out.gguf", level)
        assert inspect_gguf(tmp_path / "out.gguf").level == level


def _mixtures(level: str) -> set[str]:
    """Return the quantizations around one type, which their tensors' types do not distinguish."""
    own = level.removesuffix("_M")
    return {own, *(f"{own}_{size}" for size in "SML")} if own.endswith("_K") else {level}


@pytest.mark.parametrize("level", ["F32", "BF16", "Q2_K", "Q3_K_M", "Q4_K_M", "Q6_K", "Q8_0"])
def test_a_file_without_a_level_is_told_by_its_tensors(
    tiny_gguf: Path, tmp_path: Path, quantize: Quantize, level: str
) -> None:
    """llama.cpp's file is recognized as its quantization or a near mixture, and as no other."""
    quantize(tiny_gguf, tmp_path / "out.gguf", level)
    info = replace(inspect_gguf(tmp_path / "out.gguf"), level=None)
    taken_for = {other for other in LLAMA_FTYPES if not contradiction(info, other)}
    assert level in taken_for
    assert taken_for <= _mixtures(level)


@pytest.mark.parametrize("level", ["Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS", "TQ1_0"])
def test_rows_that_do_not_fit_are_made_as_llama_cpp_makes_them(
    write_llama: Callable[..., Any],
    tmp_path: Path,
    quantize: Quantize,
    llama_log: list[str],
    level: str,
) -> None:
    """With rows of 64 elements the file has the quantization, and its record names the types."""
    source, made = tmp_path / "narrow.gguf", tmp_path / "made.gguf"
    folder = write_llama(tmp_path / "hf", n_embd=64, tied=False).folder
    hf_to_gguf(folder, source)
    require_quantizable(inspect_gguf(source), level)
    quantize(source, made, level)
    assert any("falling back" in line or "not divisible" in line for line in llama_log)
    info = inspect_gguf(made)
    assert info.level == level
    for known in (info, replace(info, level=None)):
        assert not contradiction(known, level)
    assert contradiction(replace(info, level=None), "Q8_0" if level != "Q6_K" else "Q4_0")
    narrow = {t.type for t in info.tensors if t.name.startswith("blk.") and t.shape[0] == 64}
    said = fallback_text(info)
    assert re.search(r" in \d+% of the layers' bytes, as their rows do not fit [A-Z]", said)
    assert all(name in said for name in narrow - {"F32", "F16"})
    estimated = sum(t.nbytes for t in _at_level(inspect_gguf(source), level).tensors)
    assert estimated == pytest.approx(sum(t.nbytes for t in info.tensors), rel=0.25)


@pytest.mark.parametrize("level", ["Q8_0", "Q4_0"])
def test_rows_of_whole_small_blocks_have_the_levels_own_type(
    write_llama: Callable[..., Any], tmp_path: Path, quantize: Quantize, level: str
) -> None:
    """Rows of 64 elements are two blocks of 32, and there is no remark."""
    source, made = tmp_path / "narrow.gguf", tmp_path / "made.gguf"
    hf_to_gguf(write_llama(tmp_path / "hf", n_embd=64, tied=False).folder, source)
    quantize(source, made, level)
    assert not fallback_text(inspect_gguf(made))


def test_a_model_of_which_no_row_has_a_block_is_refused(tiny_gguf: Path) -> None:
    """llama.cpp would keep every tensor in F16 under the quantization's name."""
    info = inspect_gguf(tiny_gguf)
    narrow = tuple(replace(t, shape=(24, *t.shape[1:])) for t in info.tensors)
    with pytest.raises(ModelError, match=r"cannot be Q8_0: its rows have 24 elements"):
        require_quantizable(replace(info, tensors=narrow), "Q8_0")


def test_the_f16_file_does_not_depend_on_where_the_folder_is(
    find: Callable[..., Path], tiny: Any, tmp_path: Path
) -> None:
    """A moved installation finds its cached files again."""
    shutil.copytree(tiny.folder, tmp_path / "moved" / "tiny")
    here = find(ModelSpec(name="m", hf_folder=tiny.folder), None)
    assert find(ModelSpec(name="m", hf_folder=tmp_path / "moved" / "tiny"), None) == here


def test_a_changed_config_makes_another_file(
    find: Callable[..., Path], tiny: Any, tmp_path: Path
) -> None:
    """Not only the weights decide: another rotation base is another model."""
    shutil.copytree(tiny.folder, tmp_path / "hf")
    changed = {**tiny.config, "rope_theta": 10_000.0}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(changed))
    first = find(ModelSpec(name="m", hf_folder=tiny.folder), None)
    assert find(ModelSpec(name="m", hf_folder=tmp_path / "hf"), None) != first


@pytest.mark.parametrize("level", ["Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS"])
def test_narrow_files_are_those_of_llama_cpp_byte_by_byte(
    find: Callable[..., Path],
    write_llama: Callable[..., Any],
    tmp_path: Path,
    quantize: Quantize,
    level: str,
) -> None:
    """A worker with its own threads makes the bytes that llama.cpp makes from the same F16."""
    spec = ModelSpec(name="m", hf_folder=write_llama(tmp_path / "hf", n_embd=96).folder)
    quantize(find(spec, "F16"), tmp_path / "direct.gguf", level)
    with Worker(EngineBuild("llama_cpp", Path(sys.executable))) as worker:

        def in_worker(source: Path, target: Path, level: str) -> None:
            worker.quantize(source, target, level_recipe(level, "llama_cpp"))

        made = find(spec, level, in_worker)
    assert made.read_bytes() == (tmp_path / "direct.gguf").read_bytes()
    assert fallback_text(inspect_gguf(made))
