"""How a context is rolled back: by dropping its end, otherwise from checkpoints.

A transformer's memory can drop its end. A recurrent state cannot, nor can a window that has slid:
it is saved before tokens that may be rejected, restored, and the accepted tokens are decoded again.
Each way is tried once before it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Final

import numpy as np

from .engine import Facts, RefusalError, Stepper
from .logits import require_sound

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Dropping the end, and restoring a saved state; the cheaper way first.
_WAYS: Final = ("trim", "checkpoint")
#: Missing tokens of a text that are decoded after what the memory has of it.
_FEW: Final = 16
#: Largest change of a logit when the same tokens are decoded again after a rollback.
_SAME_LOGITS: Final = 1e-3


def find_way_back(
    stepper: Stepper, memory: str, rollback: str, use: Callable[[str], None]
) -> Facts:
    """The context's memory and the first way that rolls it back; the context is left empty.

    A rollback of `auto` allows both ways, `trim` or `checkpoint` one. Raises RefusalError if no
    allowed way works, or the logits are broken.
    """
    for way in _WAYS:
        if rollback not in {"auto", way}:
            continue
        use(way)
        if _comes_back(stepper):
            stepper.begin([], fresh=True)
            return {"memory": memory, "rollback": way}
    raise RefusalError(
        "rollback",
        f"the model's memory is {memory} and cannot be rolled back "
        + ("by dropping its end" if rollback == "trim" else "by any way that was tried"),
    )


def _comes_back(stepper: Stepper) -> bool:
    try:
        stepper.begin([0], fresh=True)
        stepper.mark()
        first = stepper.decode([0, 0], 1).copy()
        require_sound(first[0], float(first.max()))
        stepper.keep(1)
        again = stepper.decode([0, 0], 1)
        return bool(np.abs(again - first).max() < _SAME_LOGITS)
    except RefusalError as err:
        if err.kind == "broken-logits":
            raise  # NaN differs from itself even after a sound rollback
        return False


class RolledBackStepper(ABC):
    """The half of a `Stepper` that all engines share."""

    facts: Facts
    n_vocab: int

    def __init__(self, max_outputs: int, n_batch: int) -> None:
        self.max_outputs = max_outputs
        self.n_past = 0
        self._n_batch = n_batch
        self._text: list[int] = []  # the tokens in the memory
        self._has_checkpoints = False
        self._marked = -1

    def begin(self, tokens: Sequence[int], *, fresh: bool = False) -> None:
        """Have exactly these tokens in the memory; `fresh` forbids to keep any of it."""
        prompt, before, self._text = list(tokens), self._text, list(tokens)
        self._marked = -1
        if not (fresh or self._has_checkpoints):
            known = sum(takewhile(bool, map(eq, before, prompt)))
            if known >= max(1, len(prompt) - _FEW) and self._drop_tail(known):
                self._prefill(prompt[known:])
                return
        self._empty()
        self.n_past = 0
        fill = self._prefill if fresh else self._fill
        fill(prompt)

    def _fill(self, prompt: list[int]) -> None:
        """Have a prompt in the empty memory; an engine may have kept it."""
        self._prefill(prompt)

    def _prefill(self, prompt: list[int]) -> None:
        for start in range(0, len(prompt), self._n_batch):
            self._decode(prompt[start : start + self._n_batch], 0)

    def decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        """Decode tokens in one batch; logits after each of the last `n_outputs`."""
        rows = self._decode(tokens, n_outputs)
        self._text += tokens
        return rows

    def mark(self) -> None:
        """Prepare for removing tokens that are decoded from now on, if that needs preparing."""
        if self._has_checkpoints:
            self._save()
            self._marked = self.n_past

    def keep(self, n: int) -> None:
        """Remove all but the first `n` tokens; not fewer than at the mark."""
        if n == self.n_past:
            return
        kept, self._text = self._text, self._text[:n]
        if not self._has_checkpoints:
            if not self._drop_tail(n):
                raise RefusalError("rollback", f"the memory cannot drop tokens from {n} on")
            return
        mark = self._marked
        if not 0 <= mark <= n:
            raise RefusalError("rollback", f"no checkpoint before token {n}")
        if not self._restore(mark):
            raise RefusalError("rollback", f"the checkpoint at {mark} was not restored")
        if replay := kept[mark:n]:
            self._decode(replay, 0)

    def _use(self, way: str) -> None:
        self._has_checkpoints = way == "checkpoint"

    @abstractmethod
    def _empty(self) -> None:
        """Remove all tokens."""

    @abstractmethod
    def _decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        """Decode tokens in one batch; the array may be a view that the next call overwrites."""

    @abstractmethod
    def _drop_tail(self, n: int) -> bool:
        """Remove all but the first `n` tokens, if the memory can."""

    @abstractmethod
    def _save(self) -> None:
        """Make a checkpoint of the layers that cannot drop their end."""

    @abstractmethod
    def _restore(self, mark: int) -> bool:
        """Go back to the checkpoint, which was made after `mark` tokens."""
