"""The sizes of a model in Hugging Face format, of any architecture with the usual tensor names.

Names are those that `transformers` gives: `embed_tokens`, `lm_head`, `experts`, `k_proj`. Shapes
come from the weights' headers, so layers that differ from one another are counted as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_asperf.config.text_file import UnreadableTextError, read_json_table
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.causal import require_causal_folder
from pytest_asperf.modelfiles.safetensors_read import list_tensors

_INDEX: Final = "model.safetensors.index.json"
_MAX_PARTS: Final = 1000
_TABLE: Final = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|wpe)\.weight$")
_HEAD: Final = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$")
_EXPERT: Final = re.compile(r"\.(experts|switch_mlp)\.")
_FUSED: Final = re.compile(r"\.(qkv_proj|query_key_value|Wqkv)\.weight$")
_K: Final = re.compile(r"(attn|attention)\.k_proj\.weight$")
_V: Final = re.compile(r"(attn|attention)\.v_proj\.weight$")
_LATENT: Final = re.compile(r"\.kv_a_proj_with_mqa\.weight$")
_STATE: Final = re.compile(r"\.(mamba|linear_attn|ssm|mixer\.A_log|time_mix|conv\.conv)")
# Towers for images and sound and layers for multi-token prediction have no part in decoding text.
_OTHER: Final = re.compile(r"(^|\.)(visual|vision_\w+|audio_\w+|multi_modal_projector|mtp)\.")
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts")
_USED: Final = ("num_experts_per_tok", "num_experts_per_token")


@dataclass(frozen=True, slots=True)
class HfSizes:
    """A model's sizes in elements."""

    folder: Path
    #: matrices, vectors: elements of all of them in the text model
    matrices: int
    vectors: int
    read: int  #: elements of matrices that decoding one token reads
    kv_elements: tuple[int, int]  #: of K, and of V, per position of context, over all layers
    n_ctx_train: int | None
    window: int | None  #: positions that a layer with a sliding window looks back on, if it has one
    has_experts: bool
    is_recurrent: bool  #: some layers keep a state instead of a KV cache
    #: the weights are quantized, so that elements of matrices are those of packed rows
    is_packed: bool
    is_tied: bool
    expert_share: float  #: of the experts, the share that one token is routed to

    def share_read(self, name: str) -> float:
        """The share of a tensor that decoding one token reads."""
        unused = _HEAD if self.is_tied else _TABLE
        if _OTHER.search(name) or unused.search(f"{name.rpartition('.')[0]}.weight"):
            return 0.0
        return self.expert_share if _EXPERT.search(name) else 1.0


def inspect_hf(folder: Path) -> HfSizes:
    """Read the configuration and the headers of the weights, but not the weights themselves."""
    path = folder / "config.json"
    values = _read_json(path)
    require_causal_folder(folder, values)
    config = _Config(path, values)
    shapes, is_packed = _shapes(folder)
    heads = [name for name in shapes if _HEAD.search(name)]
    tied = config.flag("tie_word_embeddings") or not heads
    if tied:
        shapes = {name: shape for name, shape in shapes.items() if name not in heads}
    matrices = {name: math.prod(shape) for name, shape in shapes.items() if len(shape) > 1}
    experts = sum(n for name, n in matrices.items() if _EXPERT.search(name))
    share = config.number(*_USED) / config.number(*_EXPERTS) if experts else 1.0
    idle = experts * (1 - share)
    tables = 0 if tied else sum(n for name, n in matrices.items() if _TABLE.search(name))
    total = sum(matrices.values())
    return HfSizes(
        folder=folder,
        matrices=total,
        vectors=sum(shape[0] for shape in shapes.values() if len(shape) == 1),
        read=round(total - idle - tables),
        kv_elements=_kv_elements(shapes, config),
        n_ctx_train=config.optional("max_position_embeddings"),
        window=config.optional("sliding_window") if config.slides else None,
        has_experts=experts > 0,
        is_recurrent=any(_STATE.search(name) for name in shapes),
        is_packed=is_packed,
        is_tied=tied,
        expert_share=share,
    )


def _kv_elements(shapes: Mapping[str, tuple[int, ...]], config: _Config) -> tuple[int, int]:
    def rows(pattern: re.Pattern[str]) -> int:
        return sum(shape[0] for name, shape in shapes.items() if pattern.search(name))

    fused = sum(1 for name in shapes if _FUSED.search(name))
    own = fused * config.kv_width if fused else 0
    k, v = rows(_K) + own, rows(_V) + own
    latent = rows(_LATENT)
    if not k + latent and not any(_STATE.search(name) for name in shapes):
        raise _unusable(config.path, "none of its layers has a K matrix under a known name")
    # Layers without a matrix of their own for V cache K twice; of latent ones V is a view.
    return k + latent, max(k, v) if v or not latent else 0


class _Config:
    """`config.json`, with the text model's table over the whole's."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        text = values.get("text_config")
        self._values = {**values, **text} if isinstance(text, dict) else values

    def flag(self, key: str) -> bool:
        return self._values.get(key) is True

    def optional(self, key: str) -> int | None:
        value = self._values.get(key)
        return value if type(value) is int and 1 <= value < 1 << 31 else None

    def number(self, *keys: str) -> int:
        size = next((n for key in keys if (n := self.optional(key)) is not None), None)
        if size is None:
            raise _unusable(self.path, f"it states none of {', '.join(keys)}")
        return size

    @property
    def slides(self) -> bool:
        """True if some layer has a sliding window; Qwen2 states one and turns it off."""
        return self._values.get("use_sliding_window", True) is True

    @property
    def kv_width(self) -> int:
        heads = self.number("num_attention_heads")
        dim = self.optional("head_dim") or self.number("hidden_size") // heads
        return (self.optional("num_key_value_heads") or heads) * dim


def _shapes(folder: Path) -> tuple[dict[str, tuple[int, ...]], bool]:
    """The text model's shapes by name, and whether some are of packed weights."""
    tensors = [
        tensor
        for part in _parts(folder)
        for tensor in list_tensors(folder / part)
        if not _OTHER.search(tensor.name)
    ]
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    if not any(_TABLE.search(name) for name in shapes):
        raise _unusable(folder, "its tensors are not named as transformers names them")
    return shapes, any(tensor.type == "U32" for tensor in tensors)


def _parts(folder: Path) -> Iterable[str]:
    if not (folder / _INDEX).exists():
        return ["model.safetensors"]
    files = _read_json(folder / _INDEX).get("weight_map")
    names = sorted(set(map(str, files.values()))) if isinstance(files, dict) else []
    # A name out of a file must not lead out of the folder.
    if not 0 < len(names) <= _MAX_PARTS or any("/" in name or "\\" in name for name in names):
        raise _unusable(folder / _INDEX, "it names no files in its folder")
    return names


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json_table(path)
    except UnreadableTextError as error:
        raise _unusable(path, f"it {error}") from error


def _unusable(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}",
        remedy="give a folder with config.json and safetensors as transformers writes them, or the "
        "GGUF file",
    )
