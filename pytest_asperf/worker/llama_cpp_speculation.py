"""A llama.cpp context that can be stepped and rolled back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import llama_cpp_compat as compat
from .engine import Facts, RefusalError
from .llama_cpp_bindings import llama_cpp
from .logits import require_sound
from .rollback import RolledBackStepper, find_way_back

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .llama_cpp_prefix import SavedPrefixes

#: Tokens of a prompt that are computed before its saved cells are loaded: the timed work then finds
#: the weights in the processor's caches, as after computing the prompt.
_WARMING_TOKENS: Final = 16


class LlamaCppStepper(RolledBackStepper):
    """One sequence in a context of its own, which `close` frees."""

    def __init__(
        self,
        model: Any,
        context: Any,
        facts: Facts,
        *,
        max_outputs: int,
        rollback: str,
        complaint: Callable[[], str],
        prefixes: SavedPrefixes,
        key: Hashable,
    ) -> None:
        super().__init__(max_outputs, max(max_outputs, min(llama_cpp.llama_n_batch(context), 512)))
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._complaint = complaint
        self._prefixes = prefixes
        self._key = key
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab = self.n_drafted = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._saved: Any = None
        self._rows: tuple[int, int, NDArray[np.float32]] | None = None
        self._make_batch(self._n_batch)
        try:
            kind = compat.memory_kind(model)
            self.facts = facts | find_way_back(self, kind, rollback, self._use)
        except BaseException:
            self.close()
            raise

    def _make_batch(self, room: int) -> None:
        batch = self._batch = llama_cpp.llama_batch_init(room, 0, 1)
        for i in range(room):
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
        # Views: filling the C arrays one element at a time would be most of the loop's own time.
        self._token = np.ctypeslib.as_array(batch.token, shape=(room,))
        self._position = np.ctypeslib.as_array(batch.pos, shape=(room,))
        self._wanted = np.ctypeslib.as_array(batch.logits, shape=(room,))
        self._ramp = np.arange(llama_cpp.llama_n_ctx(self._context) + room, dtype=np.int32)

    def _fill(self, prompt: list[int]) -> None:
        """Load the saved cells of a prompt from an earlier load, or compute them."""
        if self._has_checkpoints:
            self._prefill(prompt)
        elif not (self._prefixes.holds(self._key, prompt) and self._take_back(prompt)):
            self._prefill(prompt)
            self._prefixes.keep(self._key, self._context, prompt)

    def _take_back(self, prompt: list[int]) -> bool:
        self._prefill(prompt[:_WARMING_TOKENS])
        self._empty()
        self.n_past = self._prefixes.restore(self._key, self._context, prompt)
        if self.n_past:
            self._check_position()
        else:
            self._empty()
        return bool(self.n_past)

    def _empty(self) -> None:
        compat.empty(self._context)

    def likeliest(self, tokens: list[int], n: int) -> list[int]:
        """Decode tokens, and go on with the likeliest next one until there are `n` of them."""
        drafted: list[int] = []
        for _ in range(n):
            row = self.decode(drafted[-1:] or tokens, 1)[0]
            drafted.append(int(row[: self.n_drafted].argmax()))
            require_sound(row, row[drafted[-1]])
        return drafted

    def _decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        n, first = len(tokens), self.n_past
        self._token[:n] = tokens
        self._position[:n] = self._ramp[first : first + n]
        self._wanted[:n] = 0
        self._wanted[n - n_outputs : n] = 1
        self._batch.n_tokens = n
        status = llama_cpp.llama_decode(self._context, self._batch)
        llama_cpp.llama_synchronize(self._context)
        if status != 0:
            where = f"for {n} tokens from position {first}"
            raise compat.refused(status, where, self._complaint())
        self.n_past = first + n
        self._check_position()
        return self._logits(n - n_outputs, n_outputs)

    def _logits(self, index: int, n_rows: int) -> NDArray[np.float32]:
        if not n_rows:
            return np.empty((0, self.n_vocab), np.float32)
        pointer = llama_cpp.llama_get_logits_ith(self._context, index)
        if not pointer:
            raise RefusalError("logits", f"the context returned no logits for position {index}")
        address = ctypes.addressof(pointer.contents)
        # The library writes to the same buffer each time; wrapping it again costs microseconds.
        if self._rows is None or self._rows[:2] != (address, n_rows):
            view = np.ctypeslib.as_array(pointer, shape=(n_rows, self.n_vocab))
            self._rows = (address, n_rows, view)
        return self._rows[2]

    def _save(self) -> None:
        size = compat.state_size(self._context)
        if self._saved is None or len(self._saved) < size:
            self._saved = (ctypes.c_uint8 * size)()
        self._saved_bytes = compat.save_state(self._context, self._saved, size)
        if not self._saved_bytes:
            raise RefusalError("rollback", "the context's state could not be saved")

    def _restore(self, mark: int) -> bool:
        read = compat.restore_state(self._context, self._saved, self._saved_bytes)
        return read == self._saved_bytes and self._drop_tail(mark)

    def close(self) -> None:
        """Free the context."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def _drop_tail(self, n: int) -> bool:
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, n, -1):
            return False
        self.n_past = n
        self._check_position()
        return True

    def _check_position(self) -> None:
        last = llama_cpp.llama_memory_seq_pos_max(self._memory, 0)
        if last != self.n_past - 1:
            raise RefusalError(
                "position", f"the memory ends at position {last}, not {self.n_past - 1}"
            )
