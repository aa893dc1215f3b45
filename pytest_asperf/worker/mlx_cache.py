"""KV caches of one model at the requested precision."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
import numpy as np

from . import mlx_compat as compat
from .engine import RefusalError
from .mlx_compat import TYPE_NAMES, quoted, refusing
from .mlx_lm_library import mlx_lm_cache

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: `kv_group_size` of mlx-lm.
_KV_GROUP_SIZE: Final = 64
#: Logits of one batch whose rows are read inside of a text, 256 MiB: MLX computes those of each
#: position.
_BATCH_LOGITS: Final = 2**26
_LEAST_BATCH: Final = 128


class MlxCaches:
    """Makes a model's caches, in the `kv_bits` and `kv_group_size` of the settings."""

    def __init__(self, model: Any, settings: Mapping[str, Any]) -> None:
        self._model = model
        self._bits: int | None = settings.get("kv_bits")
        self._group_size: int = settings.get("kv_group_size", _KV_GROUP_SIZE)
        if self._bits is not None:
            self._require_quantized()

    @property
    def are_quantized(self) -> bool:
        """True if the settings have bits for them."""
        return self._bits is not None

    def new(self) -> list[Any]:
        """An empty cache."""
        cache: list[Any] = mlx_lm_cache.make_prompt_cache(self._model)
        if self._bits is not None:
            # A layer without keys and values, such as a recurrent one, has nothing to quantize.
            compat.quantize_cache(cache, self._group_size, self._bits)
        return cache

    def rows_of(
        self, tokens: Sequence[int], positions: Sequence[int], n_vocab: int
    ) -> Iterator[NDArray[np.float32]]:
        """The logits of ascending positions of a text, with a new cache."""
        n_batch, cache = max(_LEAST_BATCH, _BATCH_LOGITS // n_vocab), self.new()
        for start in range(0, len(tokens), n_batch):
            with refusing("decode"):
                batch = mx.array([list(tokens[start : start + n_batch])])
                rows = self._model(batch, cache=cache)[0]
                mx.eval(rows, arrays_of(cache))
                if len(rows) != batch.shape[1]:  # MLX reads beyond the end of an array
                    raise RefusalError("decode", f"{len(rows)} rows of {batch.shape[1]} tokens")
                for position in positions:
                    if start <= position < start + n_batch:
                        yield np.array(rows[position - start].astype(mx.float32))

    def _require_quantized(self) -> None:
        """Reject bits that this model's cache cannot have, before anything is measured."""
        what = f"kv_bits {self._bits}, kv_group_size {self._group_size}"
        try:
            cache = self.new()
            mx.eval(self._model(mx.array([[0]]), cache=cache))
        except Exception as err:  # a model's own cache may raise anything
            raise RefusalError("kv-cache", f"{what}: {quoted(err)}") from err
        if not any(isinstance(layer, mlx_lm_cache.QuantizedKVCache) for layer in cache):
            raise RefusalError("kv-cache", f"{what}: none of the model's layers can have it")


def arrays_of(cache: Sequence[Any]) -> list[dict[str, Any]]:
    """All arrays of a cache, for evaluation; a layer's `state` may leave some out."""
    return [vars(part) for part in parts(cache)]


def computed_type(model: Any) -> Any:
    """The type of the layers' keys, or of the logits if no layer has keys.

    MLX computes in the widest type of weights and input: float32 with norms of that type.
    """
    cache = mlx_lm_cache.make_prompt_cache(model)
    with refusing("load"):
        logits = model(mx.array([[0, 0]]), cache=cache)  # nothing is computed yet
    keys = (getattr(part, "keys", None) for part in parts(cache))
    return next((found.dtype for found in keys if isinstance(found, mx.array)), logits.dtype)


def kv_types(cache: Sequence[Any], dtype: str) -> tuple[str, str]:
    """Types of K and V as quantizations' names; of an empty cache those that it will have.

    `dtype` is the type that is computed in. If layers differ, the name has the type of each.
    """
    layers = [part for part in parts(cache) if hasattr(part, "keys")]
    return _held_types(layers, "keys", dtype), _held_types(layers, "values", dtype)


def _held_types(layers: Sequence[Any], side: str, dtype: str) -> str:
    held = [_type_of(layer, getattr(layer, side), dtype) for layer in layers]
    return " and ".join(dict.fromkeys(held)) or dtype


def _type_of(layer: Any, held: Any, dtype: str) -> str:
    """The type of a layer's numbers by its arrays, as a cache may have others than its class."""
    if isinstance(held, mx.array):
        return TYPE_NAMES.get(held.dtype, str(held.dtype))
    if not isinstance(layer, mlx_lm_cache.QuantizedKVCache):
        return dtype
    bits, size = layer.bits, layer.group_size
    if held is not None:
        packed, scales, *_ = held
        bits = packed.shape[-1] * packed.itemsize * 8 // (scales.shape[-1] * size)
    return f"{bits}bit" + ("" if size == _KV_GROUP_SIZE else f"-g{size}")


class CacheLeftByRun:
    """A cache as a timed run left it."""

    def __init__(
        self,
        model: Any,
        cache: list[Any],
        tokens: Sequence[int],
        last_row: Any,
        chosen: Sequence[int],
    ) -> None:
        self._model = model
        #: the likeliest tokens after the last positions, as the run chose them
        self.chosen = dict(zip(range(len(tokens) - len(chosen), len(tokens)), chosen, strict=True))
        self._cache = cache
        self._tokens = list(tokens)
        self._last_row = last_row
        offsets = (getattr(layer, "offset", None) for layer in cache)
        #: tokens that the first layer with an offset counted
        self.n_held: int | None = next((n for n in offsets if isinstance(n, int)), None)

    def row(self, position: int) -> NDArray[np.float32] | None:
        """The logits of a position; None if the cache cannot drop its end."""
        with refusing("decode"):
            row = self._last_row if position == len(self._tokens) - 1 else self._again(position)
            return None if row is None else np.array(row.astype(mx.float32))

    def _again(self, position: int) -> Any:
        if not mlx_lm_cache.can_trim_prompt_cache(self._cache):
            return None
        mlx_lm_cache.trim_prompt_cache(self._cache, len(self._tokens) - position)
        del self._tokens[position + 1 :]
        return self._model(mx.array([[self._tokens[position]]]), cache=self._cache)[0, -1]


class Mark:
    """The layers of a cache that cannot drop their end, as they are after these tokens."""

    def __init__(self, tokens: list[int], cache: list[Any]) -> None:
        self._tokens = tokens
        # A copy shares its arrays' memory; a layer that later writes to them copies first.
        self._fixed = {
            number: copy.deepcopy(layer)
            for number, layer in enumerate(cache)
            if not trims(layer, sys.maxsize)
        }

    def n_kept(self, prefix: list[int]) -> int:
        """The tokens of a text that are left after a return; 0 if it begins otherwise."""
        n = len(self._tokens)
        return n if self._fixed and prefix[:n] == self._tokens else 0

    def restore(self, cache: list[Any], n_held: int) -> None:
        """Drop what a cache of `n_held` tokens has after the mark."""
        for number, layer in enumerate(cache):
            if number in self._fixed:
                cache[number] = copy.deepcopy(self._fixed[number])
            else:
                layer.trim(n_held - len(self._tokens))


def trims(layer: Any, n_ctx: int) -> bool:
    """True if a layer's empty cache can drop its end, up to so many tokens."""
    sizes = [getattr(part, "max_size", None) for part in parts([layer])]
    smallest = min((size for size in sizes if size is not None), default=math.inf)
    return bool(layer.is_trimmable()) and smallest > n_ctx


def parts(layers: Sequence[Any]) -> Iterator[Any]:
    """Yield the caches of layers, of which some have several."""
    for layer in layers:
        inner = getattr(layer, "caches", None)
        if inner is None:
            yield layer
        else:
            yield from parts(inner)
