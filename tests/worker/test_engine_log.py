"""The log of llama.cpp, in the words of each version."""

import pytest

from pytest_asperf.worker.printed.engine_log import cache_types, flash_attention, layer_counts


@pytest.mark.parametrize(
    ("lines", "resolved"),
    [
        (["llama_context: flash_attn    = 0"], "off"),
        (["llama_context: flash_attn    = 1"], "on"),
        (["llama_context: flash_attn    = disabled"], "off"),
        (["llama_context: flash_attn    = enabled"], "on"),
        (["llama_context: flash_attn    = auto", "Flash Attention was auto, set to enabled"], "on"),
        (
            ["llama_context: flash_attn    = auto", "Flash Attention was auto, set to disabled"],
            "off",
        ),
        (["llama_context: flash_attn            = auto", "Flash Attention enabled"], "on"),
        (["llama_context: flash_attn            = auto", "Flash Attention not supported"], "off"),
        (["llama_context: flash_attn    = auto"], "unknown"),
        (["llama_context: flash_attn    = 10"], "unknown"),
    ],
)
def test_flash_attention_is_read_as_resolved(lines: list[str], resolved: str) -> None:
    """A switch in 2025, then an enum whose `auto` is resolved in a later line."""
    assert flash_attention(lines) == resolved


@pytest.mark.parametrize(
    ("buffers", "offloaded"),
    [
        (("CUDA0", "CPU_Mapped"), 48),
        # A build with a GPU's backend on a machine without one prints this too.
        (("CPU_Mapped", "CUDA_Host"), 0),
    ],
)
def test_layers_are_counted_as_the_log_counts_them(
    buffers: tuple[str, ...], offloaded: int
) -> None:
    """Those of multi-token prediction, which the library leaves out, and the output head."""
    lines = [
        "load_tensors: offloaded 48/48 layers to GPU",
        *(f"load_tensors: {name} model buffer size = 10.00 MiB" for name in buffers),
    ]
    assert layer_counts(lines, 46) == {"n_layers": 47, "layers_offloaded": offloaded}
    assert layer_counts(lines[1:], 46) == {"n_layers": 46, "layers_offloaded": 0}


def _cache(name: str) -> str:
    counted = "(   512 cells,   8 layers,  1/1 seqs)"
    return f"llama_kv_cache: size = 4.00 MiB {counted}, K ({name}): 2.00 MiB, V ({name}): 2.00 MiB"


@pytest.mark.parametrize(
    ("full", "window", "held"), [("q8_0", "q8_0", "q8_0"), ("q8_0", "f16", "q8_0+f16")]
)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("llama_kv_cache_iswa: creating non-SWA", "llama_kv_cache_iswa: creating     SWA"),
        ("llama_kv_cache_dsa: creating main", "llama_kv_cache_dsa: creating indexer"),
    ],
)
def test_every_cache_of_a_context_counts(
    full: str, window: str, held: str, first: str, second: str
) -> None:
    """The cache of sliding windows, or of an indexer, may have another type than requested."""
    new = "llama_context: constructing llama_context"
    lines = [
        new,
        f"{first} KV cache, size = 4096 cells",
        _cache(full),
        f"{second} KV cache, size = 1024 cells",
        _cache(window),
    ]
    assert cache_types([new, _cache("f32"), *lines]) == (held, held)
    # Another context, such as a draft's, has types of its own.
    assert cache_types([*lines, new, _cache("f16")]) == ("f16", "f16")
    assert cache_types([]) == (None, None)
