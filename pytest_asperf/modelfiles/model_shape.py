"""The sizes that all quantizations of one model have in common, as headers state them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_asperf.errors import printable

#: Converters pad a vocabulary to a multiple of up to this many tokens.
_PADDING: Final = 256
#: By the field: its name in a message, and its place in config.json.
_HF_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "n_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "n_embd": ("hidden_size", "n_embd", "d_model"),
    "n_heads": ("num_attention_heads", "n_head", "n_heads"),
    "n_kv_heads": ("num_key_value_heads",),
    "n_ff": ("intermediate_size", "n_inner", "ffn_dim"),
    "n_vocab": ("vocab_size",),
}
#: The fields with one meaning in GGUF and in config.json, and their names in a message.
_COMMON: Final = {"n_layers": "layers", "n_embd": "embedding width", "n_heads": "heads"}
_OWN: Final = {
    "architecture": "architecture",
    "n_kv_heads": "KV heads",
    "n_ff": "feed-forward width",
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape that quantizing a model preserves; None if the header lacks a value."""

    format: Literal["gguf", "hf"]  #: the format whose names and conventions the values follow
    architecture: str | None = None
    n_layers: int | None = None  #: without layers that only multi-token prediction uses
    n_embd: int | None = None
    #: n_heads, n_kv_heads, n_ff: of the largest layer
    n_heads: int | None = None
    n_kv_heads: int | None = None
    n_ff: int | None = None
    n_vocab: int | None = None


def hf_shape(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a config.json states, its text model's table over the whole's."""
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, dict) else config
    sizes = {
        field: next((n for name in names if type(n := values.get(name)) is int and n > 0), None)
        for field, names in _HF_NAMES.items()
    }
    kind = values.get("model_type")
    return ModelShape("hf", printable(kind, 60) if isinstance(kind, str) else None, **sizes)


def shape_difference(one: ModelShape, other: ModelShape) -> str:
    """The sizes in which two models differ, such as `layers 28 against 36`; empty without any.

    Only values that both headers state are compared. A vocabulary may be padded, and GGUF and
    config.json count KV heads and name architectures in their own ways.
    """
    names = {**_COMMON, **(_OWN if one.format == other.format else {}), "n_vocab": "vocabulary"}
    return ", ".join(
        f"{name} {mine} against {theirs}"
        for field, name in names.items()
        if (mine := getattr(one, field)) is not None
        and (theirs := getattr(other, field)) is not None
        and mine != theirs
        and not (field == "n_vocab" and abs(mine - theirs) < _PADDING)
    )
