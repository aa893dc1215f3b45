"""Models that are published in several files, of which the first one is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.errors import ModelError, NoModelError
from pytest_asperf.modelfiles.disk_use import hash_files
from pytest_asperf.modelfiles.gguf_read import gguf_parts, inspect_gguf
from tests.modelfiles.gguf_files import write_parts


@pytest.fixture
def parts(tiny_gguf: Path, tmp_path: Path) -> tuple[Path, ...]:
    """A model in parts of eight tensors."""
    return write_parts(tiny_gguf, tmp_path, "tiny-F16", n_tensors=8)


def test_the_first_part_stands_for_the_whole(parts: tuple[Path, ...], tiny_gguf: Path) -> None:
    """Sizes, tensors and tokenizer are those of the model in one file."""
    assert len(parts) > 2
    assert gguf_parts(parts[0]) == parts
    found, whole = inspect_gguf(parts[0]), inspect_gguf(tiny_gguf)
    assert sorted(t.name for t in found.tensors) == sorted(t.name for t in whole.tensors)
    assert found.n_params == whole.n_params
    assert (found.tokenizer_sha256, found.shape) == (whole.tokenizer_sha256, whole.shape)
    assert found.nbytes == sum(part.stat().st_size for part in parts)


def test_a_change_in_a_later_part_is_a_change_of_the_model(
    parts: tuple[Path, ...], tmp_path: Path
) -> None:
    """The hash is over all parts."""
    before = hash_files(parts[0], cache=tmp_path / "cache")
    assert before.is_unchanged
    content = parts[-1].read_bytes()
    parts[-1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not before.is_unchanged
    assert hash_files(parts[0], cache=tmp_path / "cache").sha256 != before.sha256


def test_the_engine_quantizes_what_the_parts_hold(
    parts: tuple[Path, ...], tiny_gguf: Path, tmp_path: Path, quantize: Callable[..., None]
) -> None:
    """The result is that of the model in one file, tensor by tensor."""
    quantize(parts[0], tmp_path / "a.gguf", "Q8_0")
    quantize(tiny_gguf, tmp_path / "b.gguf", "Q8_0")
    of_parts, of_whole = (
        {t.name: (t.type, t.nbytes) for t in inspect_gguf(tmp_path / name).tensors}
        for name in ("a.gguf", "b.gguf")
    )
    assert of_parts == of_whole


def test_a_missing_part_is_an_error_and_a_later_part_no_model(parts: tuple[Path, ...]) -> None:
    """The message has the number that is missing, or the name of the first part."""
    with pytest.raises(NoModelError, match="by its name not the first"):
        inspect_gguf(parts[1])
    parts[1].unlink()
    with pytest.raises(ModelError, match=f"1 of its {len(parts)} parts are missing"):
        inspect_gguf(parts[0])


def test_a_part_of_another_place_is_named(parts: tuple[Path, ...]) -> None:
    """A part that was copied under another number would give its tensors twice."""
    shutil.copy(parts[1], parts[2])
    with pytest.raises(ModelError, match=f"is not part 3 of {len(parts)} by its own metadata"):
        inspect_gguf(parts[0])


def test_a_renamed_first_part_is_refused(parts: tuple[Path, ...], tmp_path: Path) -> None:
    """llama.cpp finds the other parts by the name of the first."""
    renamed = parts[0].rename(tmp_path / "model.gguf")
    with pytest.raises(NoModelError, match="by its name not the first"):
        inspect_gguf(renamed)
