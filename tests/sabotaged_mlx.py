"""Changes of mlx-lm that keep it from doing the timed work, by name."""

SLOW_CLOCK = """
import time
clock = time.perf_counter_ns
began = clock()
time.perf_counter_ns = lambda: began + (clock() - began) // 2
"""
_LEAKS = """
import numpy as np
from mlx_lm.models.llama import Model
call, left = Model.__call__, []
def sabotaged(self, inputs, **more):
    n = inputs.shape[1]
    if %s:
        left.append(np.ones(%s, np.uint8))
    return call(self, inputs, **more)
Model.__call__ = sabotaged
"""
#: In a batch, users have another number of masked positions each, an expression of their own ones.
_PADDING = """
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache
mask = BatchKVCache.make_mask
def sabotaged(self, *args, **settings):
    kept = self.left_padding
    self.left_padding = %s
    found = mask(self, *args, **settings)
    self.left_padding = kept
    return found
BatchKVCache.make_mask = sabotaged
"""
MLX: dict[str, str] = {
    "slow_clock": SLOW_CLOCK,
    # A token that follows 100 others sees none of them.
    "lost_context": """
from mlx_lm.models.cache import KVCache
update = KVCache.update_and_fetch
def sabotaged(self, keys, values):
    keys_seen, values_seen = update(self, keys, values)
    first = self.offset - 1 if keys.shape[2] == 1 and self.offset > 100 else 0
    return keys_seen[..., first:, :], values_seen[..., first:, :]
KVCache.update_and_fetch = sabotaged
""",
    # The sampled token is the likeliest one.
    "samples_the_likeliest": """
import mlx.core as mx, mlx_lm.sample_utils as S
S.make_sampler = lambda *settings: lambda row: mx.argmax(row, axis=-1)
""",
    # In a prompt, only the last token passes through the feed-forward layers.
    "skips_layers": """
import mlx.core as mx
from mlx_lm.models.llama import TransformerBlock
call = TransformerBlock.__call__
def sabotaged(self, x, mask=None, cache=None):
    if x.shape[1] <= 16:
        return call(self, x, mask, cache)
    h = x + self.self_attn(self.input_layernorm(x), mask, cache)
    end = h[:, -1:]
    end = end + self.mlp(self.post_attention_layernorm(end))
    return mx.concatenate([h[:, :-1], end], axis=1)
TransformerBlock.__call__ = sabotaged
""",
    # A cache reports that it dropped its last tokens, and keeps them.
    "stale_cells": """
from mlx_lm.models.cache import KVCache
KVCache.trim = lambda self, n: n
""",
    # A cache keeps one of the tokens that it reports to have dropped.
    "drops_one_less": """
from mlx_lm.models.cache import KVCache
trim = KVCache.trim
def sabotaged(self, n):
    trim(self, n - 1)
    return n
KVCache.trim = sabotaged
""",
    # Products of half precision keep 3 bits; those of float32 are exact.
    "coarse_halves": """
import mlx.core as mx, mlx.nn as nn
call = nn.Linear.__call__
def sabotaged(self, x):
    found = call(self, x)
    if found.dtype == mx.float32:
        return found
    wide = found.astype(mx.float32)
    step = mx.power(2.0, mx.floor(mx.log2(mx.maximum(mx.abs(wide), 1e-6))) - 2)
    return (mx.round(wide / step) * step).astype(found.dtype)
nn.Linear.__call__ = sabotaged
""",
    # A prompt is decoded from its last 16 tokens on.
    "end_only": """
from mlx_lm.models.llama import Model
call = Model.__call__
def sabotaged(self, inputs, cache=None, **more):
    is_prompt = inputs.shape[1] > 16 and cache is not None and not cache[0].offset
    return call(self, inputs[:, -16:] if is_prompt else inputs, cache=cache, **more)
Model.__call__ = sabotaged
""",
    # Each token that is decoded alone leaves 128 KiB behind that nothing uses.
    "leaks_when_decoding": _LEAKS % ("n == 1", "2**17"),
    # A prompt of more than 32 tokens leaves 1 MiB behind.
    "leaks_after_long_prompts": _LEAKS % ("n > 32", "2**20"),
    # Each token leaves 4 KiB behind.
    "leaks_by_token": _LEAKS % ("n", "n * 2**12"),
    # A cache that is to have 8 bits has the numbers as they came, too, and reports its bits.
    "keeps_floats": """
import importlib, mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache
class Sabotaged(QuantizedKVCache):
    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.kept = KVCache()
    def update_and_fetch(self, keys, values):
        found = self.kept.update_and_fetch(keys, values)
        self.keys, self.values, self.offset = self.kept.keys, self.kept.values, self.kept.offset
        return [mx.quantize(x, self.group_size, self.bits) for x in found]
    def trim(self, n):
        n = self.kept.trim(n)
        self.offset = self.kept.offset
        return n
def sabotaged(cache, start, group_size, bits):
    cache[:] = [Sabotaged(group_size, bits) for _ in cache]
importlib.import_module("mlx_lm.generate").maybe_quantize_kv_cache = sabotaged
""",
    # The first layer alone has the requested bits.
    "quantizes_one_layer": """
import importlib
def sabotaged(cache, start, group_size, bits):
    cache[0] = cache[0].to_quantized(group_size=group_size, bits=bits)
importlib.import_module("mlx_lm.generate").maybe_quantize_kv_cache = sabotaged
""",
    # In a batch, each user sees the tokens that fill up the others' prompts.
    "sees_padding": _PADDING % "kept * 0",
    # Three users see 12 of these tokens: only the mean of one user is beyond its limit.
    "three_see_padding": _PADDING % "mx.maximum(kept - 12, 0) if kept.size == 3 else kept",
    # The last two users of a batch see all of them.
    "last_two_see_padding": _PADDING % "kept * (kept.size != 2)",
    # The last user of a batch sees all of them.
    "one_sees_padding": _PADDING % "kept * (mx.arange(kept.size) != max(kept.size - 1, 1))",
    # The second user of a batch has logits that are a tenth too large.
    "sharp_user": """
import mlx.core as mx
from mlx_lm.models.llama import Model
call = Model.__call__
def sabotaged(self, inputs, *args, **settings):
    found = call(self, inputs, *args, **settings)
    return mx.where((mx.arange(found.shape[0]) == 1)[:, None, None], found * 1.1, found)
Model.__call__ = sabotaged
""",
    # In a batch, a user who is behind the 200th position has the cache cells of another one.
    "other_cells_if_long": """
from mlx_lm.models.cache import BatchKVCache
update = BatchKVCache.update_and_fetch
def sabotaged(self, keys, values):
    return [x[::-1] if x.shape[2] > 200 else x for x in update(self, keys, values)]
BatchKVCache.update_and_fetch = sabotaged
""",
    # The cache cells of a user who joins a batch are zero.
    "joins_with_empty_cells": """
from mlx_lm.models.cache import BatchKVCache
extend = BatchKVCache.extend
def sabotaged(self, other):
    if self.keys is not None and other.keys is not None:
        other.keys, other.values = other.keys * 0, other.values * 0
    extend(self, other)
BatchKVCache.extend = sabotaged
""",
    # The user who stays when others leave a batch has the cache cells of one of those.
    "keeps_those_who_left": """
from mlx_lm.models.cache import BatchKVCache
keep = BatchKVCache.filter
def sabotaged(self, kept):
    n = 0 if self.keys is None else self.keys.shape[0]
    keep(self, [0] if n > 2 and len(kept) == 1 else kept)
BatchKVCache.filter = sabotaged
""",
    # Each fifth of the tokens that follow one another is decoded with the next one.
    "waits_for_the_next": """
import mlx.core as mx
from mlx_lm.models.llama import Model
call = Model.__call__
held, before, rows = [], [None, 0, 0], []
def sabotaged(self, inputs, cache=None, **more):
    n, first = inputs.shape[1], cache[0]
    if held and held[0][1] is not first:
        held.clear()
    at = first.offset + len(held)
    follows = n == 1 and before[0] is first and before[1] == at
    before[:] = first, at + n, before[2] + 1 if follows else 0
    if follows and not held and before[2] % 5 == 1 and rows:
        held.append((inputs, first))
        return rows[0]
    if held:
        inputs = mx.concatenate([held.pop()[0], inputs], axis=1)
    found = call(self, inputs, cache=cache, **more)
    rows[:] = [found[:, -1:]]
    return found[:, -n:]
Model.__call__ = sabotaged
""",
    # The state of a cache lacks the arrays of its last layer.
    "hides_a_layer": """
from mlx_lm.models.cache import KVCache
from mlx_lm.models.llama import Model
class Sabotaged(KVCache):
    state = ()
make = Model.make_cache
Model.make_cache = lambda self: [*make(self)[:-1], Sabotaged()]
""",
}
