"""Changes of mlx-lm that keep it from doing the timed work, by name."""

SLOW_CLOCK = """
import time
clock = time.perf_counter_ns
began = clock()
time.perf_counter_ns = lambda: began + (clock() - began) // 2
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
}
