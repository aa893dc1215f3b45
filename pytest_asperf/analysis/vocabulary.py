"""Vocabularies of two models that differ in padding alone, so that one can draft for the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: llama.cpp, common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
MOST_PADDING: Final = 128


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model, as far as two can be compared without their texts.

    Attributes:
        rest: hash of what splits text besides the tokens, and of the special tokens.
        ends: hashes of the tokens without their last `MOST_PADDING`, one fewer, and so on; the
            last is of all tokens.
    """

    rest: str
    ends: tuple[bytes, ...]

    def pairs_with(self, other: Vocabulary) -> bool:
        """True if one has the other's tokens, and at most `MOST_PADDING` more behind them."""
        if self.rest != other.rest or not self.ends or not other.ends:
            return False
        return self.ends[-1] in other.ends or other.ends[-1] in self.ends
