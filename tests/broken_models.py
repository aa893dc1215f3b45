"""Models whose weights are broken in ways that leave their speed unchanged."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

_HUGE = 1e30


def _nan_row(weights: Any) -> None:
    weights[ord("d")] = np.nan


def _nan_one(weights: Any) -> None:
    weights[..., 3] = np.nan


def _all(value: float) -> Callable[[Any], None]:
    def fill(weights: Any) -> None:
        weights[...] = value

    return fill


def _equal_rows(weights: Any) -> None:
    weights[...] = weights[:1]


def _huge(weights: Any) -> None:
    weights *= _HUGE


#: Those whose logits are finite, and all equal.
FLAT = ("zero_norm", "equal_rows")
#: By name: the tensor, by its names in GGUF and in Hugging Face's format, and its new values.
BREAKS: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "nan_norm": ("output_norm.weight", "model.norm.weight", _all(np.nan)),
    "nan_one": ("output_norm.weight", "model.norm.weight", _nan_one),
    "nan_row": ("token_embd.weight", "model.embed_tokens.weight", _nan_row),
    "inf_norm": ("output_norm.weight", "model.norm.weight", _all(np.inf)),
    "zero_norm": ("output_norm.weight", "model.norm.weight", _all(0)),
    "equal_rows": ("token_embd.weight", "model.embed_tokens.weight", _equal_rows),
    "huge": ("output_norm.weight", "model.norm.weight", _huge),
}


def broken_gguf(source: Path, target: Path, how: str) -> Path:
    """Write a GGUF file broken in one of the ways."""
    name, _, change = BREAKS[how]
    shutil.copy(source, target)
    (tensor,) = (t for t in GGUFReader(target, "r+").tensors if t.name == name)
    with np.errstate(over="ignore"):
        change(tensor.data)
    return target


def broken_folder(source: Path, target: Path, how: str) -> Path:
    """Write a model's folder broken in one of the ways; the tensor becomes one of float32."""
    _, name, change = BREAKS[how]
    shutil.copytree(source, target)
    (path,) = target.glob("*.safetensors")
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:start])
    begin, end = header[name]["data_offsets"]
    values = np.frombuffer(raw[start:][begin:end], np.float16).astype(np.float32)
    values = values.reshape(header[name]["shape"])
    change(values)
    wide = values.tobytes()
    # Behind all others; the parts after the old one move up.
    data = raw[start:][:begin] + raw[start:][end:] + wide
    for tensor in (header[key] for key in header if key not in {name, "__metadata__"}):
        if tensor["data_offsets"][0] >= end:
            tensor["data_offsets"] = [offset - (end - begin) for offset in tensor["data_offsets"]]
    places = [len(data) - len(wide), len(data)]
    header[name] = header[name] | {"dtype": "F32", "data_offsets": places}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return target
