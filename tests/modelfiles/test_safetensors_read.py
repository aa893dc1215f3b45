import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.safetensors_read import read_safetensors


def packed(header: object, data: bytes = b"") -> bytes:
    """Return a safetensors file of this header and data."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    """Return one tensor's entry."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


VALID = packed({"a": tensor(), "b": tensor("F16", (1, 2), (8, 12))}, bytes(12))


def test_each_type_is_widened_to_what_it_stands_for(tmp_path: Path) -> None:
    """F32, F16 and BF16 of 1.5 and -2 read the same, with their shapes."""
    values = np.array([[1.5], [-2.0]], np.float32)
    raw = values.tobytes() + values.astype(np.float16).tobytes()
    raw += (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    header = {
        "__metadata__": {"format": "pt"},
        "x": tensor("F32", (2, 1), (0, 8)),
        "y": tensor("F16", (2, 1), (8, 12)),
        "z": tensor("BF16", (2, 1), (12, 16)),
    }
    (tmp_path / "m").write_bytes(packed(header, raw))
    stored = read_safetensors(tmp_path / "m")
    assert set(stored) == {"x", "y", "z"}
    for item in stored.values():
        assert item.shape == (2, 1)
        assert np.array_equal(item.as_float32(), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\xff" * 16, "truncated: its header counts"),
        (packed({})[:-1], "truncated"),
        (packed([]), "not a table"),
        ((4).to_bytes(8, "little") + b"abcd", "not JSON"),
        (packed({"a": 3}), "is not described as one"),
        (packed({"a": tensor("U32")}, bytes(8)), "of type 'U32'"),
        (packed({"a": tensor(shape=(2.5,))}, bytes(8)), "has the shape"),
        (packed({"a": tensor(shape=(-2,))}, bytes(8)), "has the shape"),
        (packed({"a": tensor(offsets=(0, 4))}, bytes(8)), "has 4 bytes"),
        (packed({"a": tensor(offsets=(-8, 0))}, bytes(8)), "has 8 bytes"),
        (packed({"a": tensor()}, bytes(7)), "truncated: tensor 'a' ends 1 bytes after it"),
        (packed({"a": tensor(), "b": tensor()}, bytes(8)), "overlap or leave a gap"),
        (packed({"a": tensor(offsets=(4, 12))}, bytes(12)), "overlap or leave a gap"),
        (packed({"a": tensor()}, bytes(9)), "1 bytes follow"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    """Lengths, offsets, types and shapes are checked against one another and the file."""
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_safetensors(tmp_path / "m")
    assert message in caught.value.what
    assert str(tmp_path / "m") in caught.value.what


@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(VALID)),
)
def test_any_damage_gives_an_error_or_tensors(damage: list[tuple[int, int]], length: int) -> None:
    """Flipped bytes and cuts never raise anything else."""
    data = bytearray(VALID)
    for position, value in damage:
        data[position] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m")
        path.write_bytes(data[:length])
        try:
            stored = read_safetensors(path)
        except ModelError:
            return
        assert all(item.as_float32().shape == item.shape for item in stored.values())
