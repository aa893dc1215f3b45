"""Tokens that are sampled where that is timed: from the whole vocabulary, or by a grammar."""

from __future__ import annotations

from typing import Final

from .engine import RefusalError

#: The ways, as a workload names them.
TOP_K_OFF: Final = "topk0"
BY_GRAMMAR: Final = "grammar"
#: Further samplers of the library engines: the defaults of `Llama.create_completion`.
TOP_P, MIN_P, TEMPERATURE = 0.95, 0.05, 0.8
#: A grammar that a text follows for as long as it goes on.
GRAMMAR: Final = "root ::= [a-z ,.]+"
_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz ,.")
_MOST_SHOWN: Final = 20


def require_grammatical(text: str) -> None:
    """Reject a sampled text that the grammar does not allow."""
    if wrong := sorted(set(text) - _CHARACTERS):
        shown = "".join(wrong[:_MOST_SHOWN])
        raise RefusalError("sampling", f"the grammar {GRAMMAR} does not allow {shown!r}")
