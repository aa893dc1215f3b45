"""Chunks of a text on llama.cpp: contexts whose batches give all their logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llama_cpp

from . import llama_cpp_compat as compat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        if status := decode_chunk(context, [begin, *tokens[1:]], first):
            where = f"for a chunk of {len(tokens)} tokens"
            raise compat.refused(status, where, self._log.complaint())

    def close(self) -> None:
        """Free both."""
        self._n_ctx, self._ahead = 0, None
        while self._contexts:
            llama_cpp.llama_free(self._contexts.pop())


def decode_chunk(context: Any, tokens: Sequence[int], first: int) -> int:
    """Decode a chunk in one batch, synchronised, logits from `first` on; llama.cpp's status."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i >= first
        status: int = llama_cpp.llama_decode(context, batch)
    finally:
        llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_synchronize(context)
    return status
