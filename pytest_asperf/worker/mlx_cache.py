"""KV caches of one model at the precision that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from . import mlx_compat as compat
from .engine import RefusalError
from .mlx_refusal import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

#: `kv_group_size` of mlx-lm.
_KV_GROUP_SIZE: Final = 64


class MlxCaches:
    """Makes a model's caches, in the `kv_bits` and `kv_group_size` of the settings."""

    def __init__(self, model: Any, settings: Mapping[str, Any]) -> None:
        self._model = model
        self._bits: int | None = settings.get("kv_bits")
        self._group_size: int = settings.get("kv_group_size", _KV_GROUP_SIZE)
        if self._bits is not None:
            self._require_quantized()

    def new(self) -> list[Any]:
        """An empty cache."""
        cache: list[Any] = make_prompt_cache(self._model)
        if self._bits is not None:
            # A layer without keys and values, such as a recurrent one, has nothing to quantise.
            compat.quantize_cache(cache, self._group_size, self._bits)
        return cache

    def _require_quantized(self) -> None:
        """Refuse bits that this model's cache cannot have, before anything is measured."""
        what = f"kv_bits {self._bits}, kv_group_size {self._group_size}"
        try:
            cache = self.new()
            mx.eval(self._model(mx.array([[0]]), cache=cache))
        except Exception as err:  # a model's own cache may raise anything
            raise RefusalError("kv-cache", f"{what}: {quoted(err)}") from err
        if not any(isinstance(layer, QuantizedKVCache) for layer in cache):
            raise RefusalError("kv-cache", f"{what}: none of the model's layers can have it")


def kv_type(cache: list[Any], dtype: str) -> str:
    """Type of K and V as a level's name; `dtype`, which is computed in, if not quantised."""
    quantised = [layer for layer in cache if isinstance(layer, QuantizedKVCache)]
    if not quantised:
        return dtype
    group_size = quantised[0].group_size
    group = "" if group_size == _KV_GROUP_SIZE else f"-g{group_size}"
    return f"{quantised[0].bits}bit{group}"
