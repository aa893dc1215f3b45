"""The log of llama.cpp, in the words of each version."""

from __future__ import annotations

import pytest

from pytest_asperf.worker.printed.engine_log import flash_attention, layer_counts


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
        # A build with a GPU's backend where there is none says the same.
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
