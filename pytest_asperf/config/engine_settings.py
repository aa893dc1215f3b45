"""Settings of an engine, and the types of its KV cache."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, get_args

from pytest_asperf.config.address import REMOTE_ADDRESS
from pytest_asperf.config.engines import MLX_GROUP_SIZE, MlxScheme, mlx_scheme
from pytest_asperf.config.table import CheckedTable, Rule, number, one_of, whole
from pytest_asperf.errors import ConfigError, listing, shown, suggest

FlashAttention = Literal["auto", "on", "off"]

#: Engines keep these numbers in 32 bits.
_LARGEST: Final = 2**31 - 1

#: Types that a KV cache can be kept in, with the bytes of an element, from ggml's block sizes
#: (type_size / block_size).
KV_TYPES: Final[dict[str, float]] = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_1": 20 / 32,
    "iq4_nl": 18 / 32, "q5_0": 22 / 32, "q5_1": 24 / 32,
}  # fmt: skip

#: MLX's quantizations of a KV cache: bits of an element, and elements that share a scale.
MLX_KV_BITS: Final = (2, 3, 4, 5, 6, 8)

MLX_KV_GROUP_SIZES: Final = (32, 64, 128)


def kv_bytes_per_element(name: str, float_bytes: float = 2.0) -> float:
    """Bytes per element of a KV cache: of one of `KV_TYPES`, or MLX's `8bit`, `4bit-g32`.

    MLX keeps the scale and the offset of a group in the type it computes in, of `float_bytes`.
    """
    scheme = mlx_scheme(name)
    if scheme is None:
        return KV_TYPES[name]
    return scheme.bits / 8 + 2 * float_bytes / scheme.group_size


_SHARES: Final = re.compile(r"\d{1,6}(\.\d{1,6})?(/\d{1,6}(\.\d{1,6})?){0,15}", re.ASCII)

#: Options of a server that decide its address and its model.
_OURS: Final = frozenset({"--port", "--host", "-m", "--model", "--api-key"})


def _one_number(numbers: tuple[int, ...]) -> Rule[int]:
    def read(value: object) -> int:
        if type(value) is not int or value not in numbers:
            raise ValueError
        return value

    return Rule(read, listing(map(str, numbers)))


def _shares(value: object) -> str:
    if not isinstance(value, str) or not _SHARES.fullmatch(value) or not any(parse_shares(value)):
        raise ValueError
    return value


def parse_shares(tensor_split: str) -> tuple[float, ...]:
    """The share of each GPU."""
    return tuple(map(float, tensor_split.split("/")))


def _options(value: object) -> str:
    """Read words for a server's command line; where it listens is ours to choose."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    for word in shlex.split(value):
        if word.partition("=")[0] in _OURS:
            raise ValueError(f": {word} is chosen by the session")
    return value


def _setting(rule: Rule[Any]) -> Any:
    """A field, and the values that it accepts."""
    return field(default=None, metadata={"rule": rule})


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """An engine's settings for a model; ``None`` uses the default of the engine's own tools."""

    threads: int | None = _setting(whole(1, _LARGEST))
    #: layers kept on a GPU; the default is all, where a GPU backend is built in
    n_gpu_layers: int | None = _setting(whole(0, _LARGEST))
    flash_attn: FlashAttention | None = _setting(one_of(get_args(FlashAttention)))
    type_k: str | None = _setting(one_of(KV_TYPES))
    type_v: str | None = _setting(one_of(KV_TYPES))
    #: bits of an element of MLX's KV cache, one of `MLX_KV_BITS`; unset, it is not quantized
    kv_bits: int | None = _setting(_one_number(MLX_KV_BITS))
    #: elements of it that share a scale, one of `MLX_KV_GROUP_SIZES`
    kv_group_size: int | None = _setting(_one_number(MLX_KV_GROUP_SIZES))
    n_batch: int | None = _setting(whole(1, _LARGEST))
    n_ubatch: int | None = _setting(whole(1, _LARGEST))
    #: shares of the layers by GPU, `1/1`; with `0/1` all are on the second
    tensor_split: str | None = _setting(Rule(_shares, 'shares of the layers by GPU, such as "1/1"'))
    #: share of the time of each step, and of a load, that is added to it, to see that a gate finds
    #: it
    slow_by: float | None = _setting(
        number("a share from 0 to 10, such as 0.07", usable=lambda share: 0 <= share <= 10)
    )
    #: the RPC server that computes for llama.cpp: `host:port`, `loopback`, `ssh:host`
    remote: str | None = _setting(REMOTE_ADDRESS)
    #: processes of this host that share an MLX model, each with a part of every layer
    processes: int | None = _setting(whole(1, 64))
    #: requests that a server that we start works on at once
    parallel: int | None = _setting(whole(1, 1024))
    #: further options of such a server, as on its command line
    server_args: str | None = _setting(
        Rule(_options, "options of the server, as behind llama-server --cache-ram 0")
    )

    def merged(self, other: EngineSettings) -> EngineSettings:
        """These settings with every value that `other` sets replaced by it."""
        return replace(self, **other.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """The settings that were set, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def as_texts(self) -> dict[str, str]:
        """The settings that were set, by name, as texts."""
        return {key: str(value) for key, value in self.as_dict().items()}

    @property
    def kv_types(self) -> tuple[str, str]:
        """The types of K and V; `f16` if none is set, which MLX treats as its own type."""
        if self.kv_bits is not None:
            level = MlxScheme(self.kv_bits, self.kv_group_size or MLX_GROUP_SIZE).level
            return level, level
        return self.type_k or "f16", self.type_v or "f16"

    @property
    def kv_name(self) -> str:
        """The type of the KV cache, `K/V` where they differ; empty for the one by default."""
        type_k, type_v = self.kv_types
        if (type_k, type_v) == ("f16", "f16"):
            return ""
        return type_k if type_k == type_v else f"{type_k}/{type_v}"

    def with_kv(self, other: EngineSettings) -> EngineSettings:
        """These settings with the KV cache of others, which replaces their own."""
        return replace(self, **{name: getattr(other, name) for name in _OF_KV})


#: The settings that decide the type of the KV cache.
_OF_KV: Final = ("type_k", "type_v", "kv_bits", "kv_group_size")


def parse_settings(
    table: Mapping[str, object], *, where: str, separator: str = ": "
) -> EngineSettings:
    """Read engine settings from a configuration file, an option or a marker."""
    checked = CheckedTable(where, table, "engine setting", separator)
    why = "the engine would run with another setting"
    rules = {one.name: one.metadata["rule"].because(why) for one in fields(EngineSettings)}
    return EngineSettings(**checked.read({}, rules))


def parse_kv_type(name: str, *, where: str) -> EngineSettings:
    """Read the type of a KV cache, as a quant sweep names it.

    A type of llama.cpp's for both (`q8_0`) or for K and V (`q8_0/f16`), or MLX's bits, with the
    size of a group or not (`8bit`, `4bit-g32`).
    """
    type_k, _, type_v = name.lower().partition("/")
    type_v = type_v or type_k
    if type_k in KV_TYPES and type_v in KV_TYPES:
        return EngineSettings(type_k=type_k, type_v=type_v)
    scheme = mlx_scheme(name)
    if scheme and (scheme.mode, scheme.group_size in MLX_KV_GROUP_SIZES) == ("affine", True):
        return EngineSettings(kv_bits=scheme.bits, kv_group_size=scheme.group_size)
    mlx_names = [f"{bits}bit" for bits in MLX_KV_BITS]
    raise ConfigError(
        f"{where}: unknown type of KV cache {shown(name, 80)}"
        f"{suggest(name.lower(), [*KV_TYPES, *mlx_names])}",
        remedy=f"on llama.cpp use one of {listing(KV_TYPES)}, or two as K/V, such as q8_0/f16; on "
        f"mlx one of {listing(mlx_names)}, or with the size of a group, such as 4bit-g32",
    )
