"""A llama.cpp context that can be stepped and rolled back.

A transformer's memory can drop its tail (`llama_memory_seq_rm`). A recurrent state cannot: it is
saved before tokens that may be rejected, restored, and the accepted tokens are decoded again. The
way is tried once before it is used.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np

from . import llama_cpp_compat as compat
from .engine import Facts, RefusalError
from .logits import require_finite
from .rollback import find_way_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class LlamaCppStepper:
    """One sequence in a context of its own.

    Args:
        model: the model's handle.
        context: the context's handle; freed by `close`.
        facts: what the context resolved to; facts of its memory are added.
        max_outputs: positions of the largest batch whose logits are asked for.
        rollback: `auto`, or `trim` or `checkpoint` to insist on one way.
        complaint: gives the last lines of the library's log.

    Attributes:
        facts: what the context resolved to, and how it is rolled back.
        n_vocab: tokens of the vocabulary.
        n_past: tokens in the memory.
        max_outputs: positions of the largest batch whose logits are asked for.

    Raises:
        RefusalError: it cannot be rolled back.
    """

    def __init__(
        self,
        model: Any,
        context: Any,
        facts: Facts,
        *,
        max_outputs: int,
        rollback: str,
        complaint: Callable[[], str],
    ) -> None:
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._complaint = complaint
        self.max_outputs = max_outputs
        self.n_past = 0
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._prompt: list[int] = []
        self._marked, self._since = -1, list[int]()
        self._saved: Any = None
        self._checkpoints = False
        self._rows: tuple[int, int, NDArray[np.float32]] | None = None
        self._make_batch(max(max_outputs, min(llama_cpp.llama_n_batch(context), 512)))
        try:
            way = find_way_back(self, compat.memory_kind(model), rollback, self._use)
            self.facts = facts | way
        except BaseException:
            self.close()
            raise

    def _make_batch(self, room: int) -> None:
        self._room = room
        batch = self._batch = llama_cpp.llama_batch_init(room, 0, 1)
        for i in range(room):
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
        # Views: filling the C arrays one element at a time would be most of the loop's own time.
        self._token = np.ctypeslib.as_array(batch.token, shape=(room,))
        self._position = np.ctypeslib.as_array(batch.pos, shape=(room,))
        self._wanted = np.ctypeslib.as_array(batch.logits, shape=(room,))
        self._ramp = np.arange(llama_cpp.llama_n_ctx(self._context) + room, dtype=np.int32)

    def begin(self, tokens: Sequence[int], *, fresh: bool = False) -> None:
        """Have exactly these tokens in the memory.

        Args:
            tokens: the text.
            fresh: empty the memory first, even where its head is this text already.
        """
        prompt = list(tokens)
        known = not (fresh or self._checkpoints) and self._prompt == prompt
        self._marked = -1
        if known and self._forget(len(prompt)):
            return
        llama_cpp.llama_memory_clear(self._memory, False)  # noqa: FBT003  # a C signature
        self.n_past, self._prompt = 0, prompt
        for start in range(0, len(prompt), self._room):
            self._decode(prompt[start : start + self._room], 0)

    def decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        """Decode tokens in one batch; return logits after each of the last `n_outputs`.

        The array is a view that the next call overwrites.
        """
        self._since += tokens
        return self._decode(tokens, n_outputs)

    def likeliest(self, tokens: list[int], n: int) -> list[int]:
        """Decode tokens, and go on with the likeliest next one until there are `n` of them."""
        found: list[int] = []
        for _ in range(n):
            row = self.decode(found[-1:] or tokens, 1)[0]
            found.append(int(row.argmax()))
            require_finite(row[found[-1]])
        return found

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
            raise RefusalError(
                "decode",
                f"llama_decode returned {status} for {n} tokens from position {first}: "
                + self._complaint(),
            )
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
        # The library writes to the same buffer each time; wrapping it anew costs microseconds.
        if self._rows is None or self._rows[:2] != (address, n_rows):
            view = np.ctypeslib.as_array(pointer, shape=(n_rows, self.n_vocab))
            self._rows = (address, n_rows, view)
        return self._rows[2]

    def mark(self) -> None:
        """Prepare for forgetting what is decoded from now on, where that needs preparing."""
        if not self._checkpoints:
            return
        size = compat.state_size(self._context)
        if self._saved is None or len(self._saved) < size:
            self._saved = (ctypes.c_uint8 * size)()
        self._saved_bytes = compat.save_state(self._context, self._saved, size)
        if not self._saved_bytes:
            raise RefusalError("rollback", "the context's state could not be saved")
        self._marked, self._since = self.n_past, []

    def keep(self, n: int) -> None:
        """Forget all but the first `n` tokens; not fewer than at the mark."""
        if n == self.n_past:
            return
        if not self._checkpoints:
            if not self._forget(n):
                raise RefusalError("rollback", f"the memory refused to forget from token {n} on")
            return
        if not 0 <= self._marked <= n:
            raise RefusalError("rollback", f"no checkpoint before token {n}")
        read = compat.restore_state(self._context, self._saved, self._saved_bytes)
        if read != self._saved_bytes or not self._forget(self._marked):
            raise RefusalError("rollback", f"the checkpoint at {self._marked} was not taken back")
        replay = self._since[: n - self._marked]
        if replay:
            self._decode(replay, 0)

    def close(self) -> None:
        """Free the context."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def _forget(self, n: int) -> bool:
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, n, -1):
            return False
        self.n_past = n
        self._check_position()
        return True

    def _check_position(self) -> None:
        found = llama_cpp.llama_memory_seq_pos_max(self._memory, 0)
        if found != self.n_past - 1:
            raise RefusalError(
                "position", f"the memory ends at position {found}, not {self.n_past - 1}"
            )

    def _use(self, way: str) -> None:
        self._checkpoints = way == "checkpoint"
