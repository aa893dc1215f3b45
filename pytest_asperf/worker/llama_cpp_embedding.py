"""One vector of each text from llama.cpp, as its pooling makes them: texts alone, or in batches."""

from __future__ import annotations

import ctypes
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import llama_cpp_compat as compat
from .engine import RefusalError, Timing
from .llama_cpp_batch import decode_sequences
from .llama_cpp_bindings import llama_cpp
from .logits import seen
from .priority import linger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from .engine import Facts

#: `enum llama_pooling_type`.
FROM_FILE: Final = -1
_NONE, _MEAN, _RANK = 0, 1, 4
_NAMES: Final = {_MEAN: "mean", 2: "cls", 3: "last"}


#: Bytes of a value of a file's header that are read.
_MAX_TEXT: Final = 64
#: Parts of a text, each of which must count.
_PARTS: Final = 4


def encodes(model: Any) -> bool:
    """True if the file says that it continues no text: its vectors are pooled, or not causal."""
    kind = _stated(model, "general.architecture")
    pooling = _stated(model, f"{kind}.pooling_type")
    return pooling not in {"", "-1", "0"} or _stated(model, f"{kind}.attention.causal") == "false"


def _stated(model: Any, key: str) -> str:
    """A value of the file's header in words, empty if it has none."""
    text = ctypes.create_string_buffer(_MAX_TEXT)
    n = llama_cpp.llama_model_meta_val_str(model, key.encode(), text, _MAX_TEXT)
    return text.value.decode(errors="replace") if n > 0 else ""


class Encoder:
    """Times the vector of one text, in a context that is made anew for a longer text.

    `open_with` opens one for so many tokens. A run takes longer by the share `slow_by`.
    """

    def __init__(
        self,
        open_with: Callable[[int, int], tuple[Any, Facts]],
        complaint: Callable[[], str],
        slow_by: float,
    ) -> None:
        self._open_with = open_with
        self._complaint = complaint
        self._slow_by = slow_by
        self._context: Any = None
        self._n_ctx = 0
        self.facts: Facts = {}  #: what the context resolved to

    def timed(self, tokens: Sequence[int]) -> Timing:
        """Compute the vector in one batch, timed."""
        n = len(tokens)
        if n > self._n_ctx:
            self.close()
            self._context, self.facts = open_pooling(partial(self._open_with, n))
            self._n_ctx = n
            self._require_whole(tokens)
        started_ns = time.perf_counter_ns()
        vector = self._vector_of(tokens)
        linger(started_ns, self._slow_by)
        elapsed_ns = time.perf_counter_ns() - started_ns
        return Timing(n, elapsed_ns, (elapsed_ns,), seen(vector))

    def _vector_of(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        (vector,) = vectors_of(self._context, [[tokens]], self._complaint)
        return np.asarray(vector, np.float32)

    def _require_whole(self, tokens: Sequence[int]) -> None:
        """Reject a vector that leaves out a part of the text, as the time of one says nothing.

        Each quarter of the text is turned round; the first and the last token may be special.
        """
        whole = self._vector_of(tokens)
        inner = len(tokens) - 2
        for part in range(_PARTS):
            first, end = (1 + inner * n // _PARTS for n in (part, part + 1))
            turned = [*tokens[:first], *tokens[first:end][::-1], *tokens[end:]]
            if turned != [*tokens] and np.array_equal(whole, self._vector_of(turned)):
                where = f"tokens {first} to {end - 1} of {len(tokens)}"
                raise RefusalError("vectors", f"the order of {where} does not change the vector")

    def close(self) -> None:
        """Free the context, if there is one."""
        if self._context:
            llama_cpp.llama_free(self._context)
        self._context, self._n_ctx = None, 0


def open_pooling(open_with: Callable[[int], tuple[Any, Facts]]) -> tuple[Any, Facts]:
    """A context that pools as the file says, otherwise by the mean, and its facts.

    `open_with` opens a context that pools in one of llama.cpp's ways.
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
