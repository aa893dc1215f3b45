"""Samplers of llama.cpp in llama-cpp-python's order: of the whole vocabulary, or by a grammar."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, Self

from .engine import RefusalError
from .llama_cpp_bindings import llama_cpp
from .logits import flattened, is_allowed, likeliest_share
from .sampling import (
    BY_GRAMMAR,
    DRAWN,
    GRAMMAR,
    MIN_P,
    TEMPERATURE,
    TOP_P,
    Variety,
    require_grammatical,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Setting of timed grammars: the default of `Llama.create_completion`.
_TOP_K: Final = 40
_SEED: Final = 1
_MAX_PIECE: Final = 256


class TimedSampler:
    """A chain of samplers; a context manager that frees it.

    Args:
        vocab: the model's vocabulary.
        how: `topk0`, from the whole vocabulary, or `grammar`.
    """

    def __init__(self, vocab: Any, how: str) -> None:
        self._vocab = vocab
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self._has_grammar = how == BY_GRAMMAR
        self._tokens: list[int] = []
        self._chain = llama_cpp.llama_sampler_chain_init(
            llama_cpp.llama_sampler_chain_default_params()
        )
        if self._has_grammar:
            grammar = llama_cpp.llama_sampler_init_grammar(vocab, GRAMMAR.encode(), b"root")
            if not grammar:
                self._free()
                raise RefusalError("sampling", "llama.cpp rejected the grammar")
            self._add(grammar)
        self._add(llama_cpp.llama_sampler_init_top_k(_TOP_K if self._has_grammar else 0))
        self._add(llama_cpp.llama_sampler_init_top_p(TOP_P, 1))
        self._add(llama_cpp.llama_sampler_init_min_p(MIN_P, 1))
        self._add(llama_cpp.llama_sampler_init_temp(TEMPERATURE))
        self._add(llama_cpp.llama_sampler_init_dist(_SEED))

    def _add(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_chain_add(self._chain, sampler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        llama_cpp.llama_sampler_free(self._chain)

    def sample(self, context: Any) -> None:
        """Sample a token by the last logits of a context."""
        self._tokens.append(llama_cpp.llama_sampler_sample(self._chain, context, -1))

    def require_varied(self, context: Any, row: NDArray[np.float32]) -> None:
        """Reject a sampler of the whole vocabulary that always chooses the likeliest token.

        The logits are the context's last ones, which are flat during these draws.
        """
        if self._has_grammar:
            return
        kept = row.copy()
        row[:] = flattened(row)
        variety, share, likeliest = Variety(), likeliest_share(row), int(row.argmax())
        try:
            for _ in range(DRAWN):
                token = llama_cpp.llama_sampler_sample(self._chain, context, -1)
                variety.add(share, is_likeliest=token == likeliest)
        finally:
            row[:] = kept

    def require_sampled(self, row: NDArray[np.float32]) -> None:
        """Reject tokens that the samplers cannot give; the logits are those of the last token."""
        if not all(0 <= token < self._n_vocab for token in self._tokens):
            raise RefusalError("sampling", "a sampled token is not in the vocabulary")
        if self._has_grammar:
            text = b"".join(map(self._piece, self._tokens)).decode(errors="replace")
            require_grammatical(text)
        elif not is_allowed(row, self._tokens[-1]):
            raise RefusalError("sampling", "a sampled token is less likely than min-p allows")

    def _piece(self, token: int) -> bytes:
        """The text of a token; empty of one that ends a text."""
        if llama_cpp.llama_vocab_is_eog(self._vocab, token):
            return b""
        held = ctypes.create_string_buffer(_MAX_PIECE)
        n = llama_cpp.llama_token_to_piece(self._vocab, token, held, _MAX_PIECE, 0, False)  # noqa: FBT003  # a C signature
        return held.raw[: max(0, n)]
