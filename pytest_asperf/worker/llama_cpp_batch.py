"""Batches of llama.cpp with positions, sequences and wanted logits, and their results."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import llama_cpp_compat as compat
from .engine import RefusalError
from .llama_cpp_bindings import llama_cpp

if TYPE_CHECKING:
    from numpy.typing import NDArray


def decode_chunk(context: Any, tokens: Sequence[int], wanted: Container[int]) -> int:
    """Decode a chunk in one batch, synchronised, with the wanted positions' logits; the status."""
    return decode_sequences(context, [(t, i, 0) for i, t in enumerate(tokens)], wanted)


def decode_sequences(
    context: Any, entries: Sequence[tuple[int, int, int]], wanted: Container[int]
) -> int:
    """Decode tokens with their positions and sequences in one batch; the status."""
    batch = llama_cpp.llama_batch_init(len(entries), 0, 1)
    try:
        batch.n_tokens = len(entries)
        for i, (token, position, sequence) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = i in wanted
        status: int = llama_cpp.llama_decode(context, batch)
    finally:
        llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_synchronize(context)
    return status


def together(
    context: Any,
    sequences: Sequence[Sequence[int]],
    n_decoded: Sequence[int],
    n_vocab: int,
    complaint: Callable[[], str],
) -> Iterator[list[NDArray[np.float32]]]:
    """Decode sequences together; the rows of each call as `LoadedModel` has them."""
    parts = [range(len(s) - n) for s, n in zip(sequences, n_decoded, strict=True)]
    while any(parts):
        entries = [
            (sequences[number][position], position, number)
            for number, part in enumerate(parts)
            for position in part
        ]
        if status := decode_sequences(context, entries, range(len(entries))):
            where = f"for {len(sequences)} sequences at positions {[part.start for part in parts]}"
            raise compat.refused(status, where, complaint())
        rows = rows_of(context, 0, n_vocab, len(entries))
        yield np.split(rows, np.cumsum([*map(len, parts)])[:-1])
        ends = [(part.stop, len(s)) for part, s in zip(parts, sequences, strict=True)]
        parts = [range(first, min(first + 1, end)) for first, end in ends]


def rows_of(context: Any, position: int, n_vocab: int, n_rows: int = 1) -> NDArray[np.float32]:
    """Rows of the last batch's logits, as a view of the library's buffer."""
    pointer = llama_cpp.llama_get_logits_ith(context, position)
    if not pointer:
        raise RefusalError("logits", "the context returned no logits")
    rows: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(n_rows, n_vocab))
    return rows
