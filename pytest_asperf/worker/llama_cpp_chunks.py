"""Chunks of a text on llama.cpp: contexts whose batches give all their logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np

from . import llama_cpp_compat as compat
from .engine import RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from numpy.typing import NDArray

    from .engine import Facts
    from .llama_cpp_log import LibraryLog


class ChunkContexts:
    """The context whose logits are read, and where one looks ahead, that of the next chunk.

    Attributes:
        facts: what the contexts resolved to.
    """

    def __init__(
        self, new_context: Callable[[int], tuple[Any, Facts]], bos: int | None, log: LibraryLog
    ) -> None:
        self._new_context = new_context
        self._bos = bos
        self._log = log
        self.facts: Facts = {}
        self._n_ctx = 0
        self._contexts: list[Any] = []
        self._ahead: tuple[list[int], int] | None = None

    def read(self, tokens: Sequence[int], first: int) -> Any:
        """A context that has decoded a chunk; what the last call gave may be overwritten."""
        if self._ahead == ([*tokens], first):
            self._contexts.reverse()
        else:
            if self._n_ctx != len(tokens):
                self.close()
                self._n_ctx = len(tokens)
            self._fill(0, tokens, first)
        self._ahead = None
        return self._contexts[0]

    def look_ahead(self, tokens: Sequence[int], first: int) -> None:
        """Decode a chunk beside the one that is read, if it is of the same size."""
        if len(tokens) == self._n_ctx:
            self._ahead = None
            self._fill(1, tokens, first)
            self._ahead = [*tokens], first

    def _fill(self, index: int, tokens: Sequence[int], first: int) -> None:
        if index == len(self._contexts):
            context, self.facts = self._new_context(len(tokens))
            self._contexts.append(context)
        context = self._contexts[index]
        compat.empty(context)
        begin = tokens[0] if self._bos is None else self._bos
        if status := decode_chunk(context, [begin, *tokens[1:]], range(first, len(tokens))):
            where = f"for a chunk of {len(tokens)} tokens"
            raise compat.refused(status, where, self._log.complaint())

    def close(self) -> None:
        """Free both."""
        self._n_ctx, self._ahead = 0, None
        while self._contexts:
            llama_cpp.llama_free(self._contexts.pop())


def decode_chunk(context: Any, tokens: Sequence[int], wanted: Container[int]) -> int:
    """Decode a chunk in one batch, synchronised, with the wanted positions' logits; the status."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i in wanted
        status: int = llama_cpp.llama_decode(context, batch)
    finally:
        llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_synchronize(context)
    return status


def rows_of(context: Any, position: int, n_vocab: int, n_rows: int = 1) -> NDArray[np.float32]:
    """Rows of the last batch's logits, as a view of the library's buffer."""
    pointer = llama_cpp.llama_get_logits_ith(context, position)
    if not pointer:
        raise RefusalError("logits", "the context returned no logits")
    rows: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(n_rows, n_vocab))
    return rows


class ContextLeftByRun:
    """A context as a timed run left it.

    Attributes:
        n_held: tokens up to the last position that the memory knows.
    """

    def __init__(
        self, context: Any, tokens: Sequence[int], n_vocab: int, decode: Callable[[list[int]], Any]
    ) -> None:
        self._context = context
        self._tokens = tokens
        self._n_vocab = n_vocab
        self._decode = decode
        self._memory = llama_cpp.llama_get_memory(context)
        self.n_held: int | None = llama_cpp.llama_memory_seq_pos_max(self._memory, 0) + 1

    def row(self, position: int) -> NDArray[np.float32] | None:
        """The logits of a position; None if the memory cannot drop its tail."""
        if position != len(self._tokens) - 1:
            if not llama_cpp.llama_memory_seq_rm(self._memory, 0, position, -1):
                return None
            self._decode([self._tokens[position]])
        row: NDArray[np.float32] = rows_of(self._context, -1, self._n_vocab)[0]
        return row
