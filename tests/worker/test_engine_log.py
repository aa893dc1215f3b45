"""What llama.cpp's log says, in the words of each version."""

from __future__ import annotations

import pytest

from pytest_asperf.worker.printed.engine_log import flash_attention


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
