"""The sizes and rules that all quantizations of one model have in common, as headers state them."""

import math
from collections.abc import Iterator, Mapping
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
#: The keys of an architecture that converters, padding and layers for multi-token prediction
#: change; quantizing a model changes none.
_MAY_DIFFER: Final = frozenset(
    {"block_count", "context_length", "nextn_predict_layers", "tensor_data_layout", "vocab_size"}
)
#: With latent attention, converters state the sizes of one shared head, or of all of them.
_LATENT: Final = frozenset(
    f"attention.{key}" for key in ("head_count_kv", "key_length", "value_length")
)
#: The values of config.json that a model computes with, by the name in GGUF if it has the meaning.
_HF_RULES: Final[Mapping[str, str]] = {
    "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "num_experts_per_tok": "expert_used_count",
    "factor": "rope_scaling.factor",
    **{key: key for key in ("head_dim", "hidden_act", "partial_rotary_factor", "sliding_window")},
}
#: The values that llama.cpp uses if a header has none.
_DEFAULTS: Final = {"rope.freq_base": 10_000, "rope.scaling.factor": 1}
#: The largest relative difference of one number in two headers: GGUF keeps 32 bits of it.
_ROUNDING: Final = 1e-6

Rule = int | float | bool | str | tuple[int | float, ...]


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
    rules: tuple[tuple[str, Rule], ...] = ()  #: further values that the model computes with


def gguf_rules(
    architecture: str, values: Mapping[str, object], *, is_latent: bool
) -> tuple[tuple[str, Rule], ...]:
    """The metadata of a file's architecture, except what is not the model's own."""
    left_out = _MAY_DIFFER | (_LATENT if is_latent else frozenset())
    named = ((key.removeprefix(f"{architecture}."), key, value) for key, value in values.items())
    return tuple(
        (name, value)
        for name, key, value in named
        if name != key and name not in left_out and isinstance(value, int | float | str | tuple)
    )


def hf_shape(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a config.json states, its text model's table over the whole's."""
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, dict) else config
    sizes = {
        field: next((n for name in names if type(n := values.get(name)) is int and n > 0), None)
        for field, names in _HF_NAMES.items()
    }
    kind = values.get("model_type")
    # Newer configurations have all of it in one table, or in one for each kind of layer.
    if isinstance(rope := values.get("rope_parameters"), dict):
        values = {**values, **rope}
    else:
        scaling = values.get("rope_scaling")
        values = {"factor": 1, **values, **(scaling if isinstance(scaling, dict) else {})}
    if values.get("use_sliding_window") is False:
        values["sliding_window"] = None
    rules = tuple(
        (name, value)
        for key, name in _HF_RULES.items()
        if isinstance(value := values.get(key), int | float | str)
    )
    architecture = printable(kind, 60) if isinstance(kind, str) else None
    return ModelShape("hf", architecture, **sizes, rules=rules)


def shape_difference(one: ModelShape, other: ModelShape, *, sizes_only: bool = False) -> str:
    """The sizes in which two models differ, such as `layers 28 against 36`; otherwise the rules.

    Empty if they agree. Only values that both headers state are compared, or that have a default.
    A vocabulary may be padded, and GGUF and config.json count KV heads and name architectures in
    their own ways.
    """
    names = {**_COMMON, **(_OWN if one.format == other.format else {}), "n_vocab": "vocabulary"}
    sizes = ", ".join(
        f"{name} {mine} against {theirs}"
        for field, name in names.items()
        if (mine := getattr(one, field)) is not None
        and (theirs := getattr(other, field)) is not None
        and mine != theirs
        and not (field == "n_vocab" and abs(mine - theirs) < _PADDING)
    )
    return sizes if sizes or sizes_only else ", ".join(_rule_differences(one, other))


def _rule_differences(one: ModelShape, other: ModelShape) -> Iterator[str]:
    defaults = _DEFAULTS if one.format == other.format == "gguf" else {}
    first, second = dict(one.rules), dict(other.rules)
    for name in dict.fromkeys((*first, *second)):
        mine, theirs = (rules.get(name, defaults.get(name)) for rules in (first, second))
        if mine is not None and theirs is not None and not _agree(mine, theirs):
            yield printable(f"{name} {_shown(mine)} against {_shown(theirs)}", 120)


def _agree(one: Rule, other: Rule) -> bool:
    """True for a value of the whole model and one by layer, which converters use for each other."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_agree, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_ROUNDING)
    return one == other or isinstance(one, tuple) or isinstance(other, tuple)


def _shown(value: Rule) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]
