"""Tokens that are sampled where that is timed: from the whole vocabulary, or by a grammar."""

from __future__ import annotations

import math
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
_FIXED: Final = 0.9
_MOST: Final = math.log(1e5)
#: Tokens that are drawn for it from one flat row.
DRAWN: Final = 64
#: Sampled tokens after which texts are too predictable to show it.
_MOST_SAMPLED: Final = 256


class Variety:
    """Evidence that sampled tokens are nearly always the likeliest ones.

    It is the likelihood ratio of a sampler that is fixed to them at `_FIXED` of its tokens to one
    that is not: sound samplers reach `_MOST` in 1 of 100,000 cases.
    """

    def __init__(self) -> None:
        self._log, self._n, self._n_likeliest, self._expected = 0.0, 0, 0, 0.0

    def is_open(self) -> bool:
        """True if tokens are not shown to vary, and more of them may do so."""
        return not self.is_shown and self._n < _MOST_SAMPLED

    @property
    def is_shown(self) -> bool:
        """True if tokens vary as they should."""
        return self._log < -_MOST

    def add(self, share: float, *, is_likeliest: bool) -> None:
        """Count a token, where the likeliest one has this share."""
        free = 1 - _FIXED
        self._log += math.log((_FIXED + free * share) / share if is_likeliest else free)
        self._n, self._n_likeliest = self._n + 1, self._n_likeliest + is_likeliest
        self._expected += share
        if self._log > _MOST:
            raise RefusalError(
                "sampling",
                f"{self._n_likeliest} of {self._n} sampled tokens are the likeliest ones, of which "
                f"{self._expected:.0f} should be",
            )


def require_grammatical(text: str) -> None:
    """Reject a sampled text that the grammar does not allow."""
    if wrong := sorted(set(text) - _CHARACTERS):
        shown = "".join(wrong[:_MOST_SHOWN])
        raise RefusalError("sampling", f"the grammar {GRAMMAR} does not allow {shown!r}")
