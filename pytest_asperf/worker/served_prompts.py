"""Prompts of a given number of tokens, each of which no server has seen before."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain, permutations
from typing import Final

from .engine import RefusalError

#: A prompt begins with words of these in random order, so that no cache has its beginning.
_WORDS: Final = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world"),
    *("school", "state", "family", "student", "group", "country", "problem", "hand", "part"),
    *("place", "case", "week", "company", "system", "program", "question", "work", "number"),
    *("night", "point", "home", "water", "room", "mother", "area", "money", "story", "fact"),
)
_N_WORDS: Final = 6
#: Characters of each, with the space after it.
_WORD_LENGTH: Final = 6
#: Accepted difference between the number of tokens and the requested number.
_WITHIN: Final = 0.02
_TRIES: Final = 24


def new_beginning(n_tokens: int) -> str:
    """A first line of a few words, for a prompt of so many tokens that begins like no other."""
    # Unguessable: a server that runs for days must not have seen them in an earlier session.
    words = random.SystemRandom().sample(_WORDS, min(_N_WORDS, max(1, n_tokens // 2)))
    return " ".join(words) + "\n"


class Prompts:
    """Makes prompts of a text; `is_cheap` if counting tokens needs no work of the model."""

    def __init__(self, count: Callable[[str], int], *, is_cheap: bool = True) -> None:
        self._count = count
        self._is_cheap = is_cheap
        self._n_characters: dict[int, int] = {}

    def draw(self, text: str, n_tokens: int) -> str:
        """A prompt of about so many tokens, like no other; RefusalError if the text is short."""
        begins = new_beginning(n_tokens)
        if self._is_cheap or n_tokens not in self._n_characters:
            self._n_characters[n_tokens] = self._fitted(begins, text, n_tokens)
        return begins + text[: self._n_characters[n_tokens]]

    def _fitted(self, begins: str, text: str, n_tokens: int) -> int:
        """The characters of the text that make the prompt nearest to so many tokens.

        A server may compute each prompt that it counts, so the first try is short. It may keep what
        it computed, and mlx-lm 0.32.2 ends if a prompt is an earlier one with its answer. So no
        two tries begin alike: with the words in another order, or with other words.
        """
        words = begins.split()
        others = [w for w in random.sample(_WORDS, len(_WORDS)) if w not in words]
        orders = chain(permutations(words[::-1]), permutations(others, len(words)))
        beginnings = (" ".join(order) + "\n" for order in orders if order != tuple(words))
        low, end = 0, len(text) + 1
        best = (n_tokens, 0)
        middle = self._n_characters.get(n_tokens, n_tokens)
        for _ in range(_TRIES):
            middle = min(middle, len(text))
            if not self._is_cheap:
                begins = next(beginnings)
            n = self._count(begins + text[:middle])
            best = min(best, (abs(n - n_tokens), middle))
            if n < n_tokens and middle == len(text):
                raise RefusalError(
                    "context", f"the text has {n} tokens, and {n_tokens} were requested"
                )
            low, end = (middle, end) if n < n_tokens else (low, middle)
            if n == n_tokens or end - low <= 1:
                break
            # Alike for all first words, so that prompts of an equal number of words end alike.
            n_characters = _WORD_LENGTH * len(words) + middle
            step = middle + round((n_tokens - n) * n_characters / max(1, n))
            middle = step if low < step < end else (low + end) // 2
        return best[1]


def is_near(counted: int, wanted: int) -> bool:
    """True if a server counted the requested number of tokens in a prompt, or nearly."""
    return abs(counted - wanted) <= max(4, _WITHIN * wanted)
