"""One vector of each text from llama.cpp, as its pooling makes them: texts alone, or in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import llama_cpp
import numpy as np

from . import llama_cpp_compat as compat
from .engine import RefusalError
from .llama_cpp_batch import decode_sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .engine import Facts

#: `enum llama_pooling_type`.
FROM_FILE: Final = -1
_NONE, _MEAN, _RANK = 0, 1, 4
_NAMES: Final = {_MEAN: "mean", 2: "cls", 3: "last"}


def open_pooling(open_with: Callable[[int], tuple[Any, Facts]]) -> tuple[Any, Facts]:
    """A context that pools as the file says, otherwise by the mean, and its facts.

    Args:
        open_with: opens a context that pools in one of llama.cpp's ways.
    """
    context, facts = open_with(FROM_FILE)
    pooling, by = llama_cpp.llama_pooling_type(context), "by the file"
    if pooling == _NONE:
        llama_cpp.llama_free(context)
        context, facts = open_with(_MEAN)
        pooling, by = _MEAN, "as the file names none"
    if pooling == _RANK:
        llama_cpp.llama_free(context)
        raise RefusalError("unsupported", "a reranker gives a score of two texts, and no vector")
    return context, {**facts, "pooling": f"{_NAMES.get(pooling, pooling)}, {by}"}


def vectors_of(
    context: Any, groups: Sequence[Sequence[Sequence[int]]], complaint: Callable[[], str]
) -> Iterator[list[float]]:
    """The vector of each text; those of a group are computed in one call."""
    model = llama_cpp.llama_get_model(context)
    n_embd = compat.embedding_size(model)
    for texts in groups:
        compat.empty(context)
        entries = [
            (token, position, number)
            for number, text in enumerate(texts)
            for position, token in enumerate(text)
        ]
        if status := decode_sequences(context, entries, range(len(entries))):
            raise compat.refused(status, f"for {len(texts)} texts", complaint())
        for number in range(len(texts)):
            pointer = llama_cpp.llama_get_embeddings_seq(context, number)
            if not pointer:
                raise RefusalError("embeddings", "the context returned no vector of a text")
            yield np.ctypeslib.as_array(pointer, shape=(n_embd,)).tolist()


def packed(texts: Sequence[Sequence[int]], room: int) -> list[list[Sequence[int]]]:
    """Texts in groups, each of at most so many tokens, in their order.

    An error if a text alone has more: an encoder processes all of a text at once.
    """
    groups: list[list[Sequence[int]]] = []
    left = 0
    for text in texts:
        if len(text) > room:
            raise RefusalError(
                "context", f"a text has {len(text)} tokens, and a physical batch {room}"
            )
        if len(text) > left:
            groups.append([])
            left = room
        groups[-1].append(text)
        left -= len(text)
    return groups
