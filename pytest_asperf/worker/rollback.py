"""How a context is rolled back: each way is tried once before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .engine import Facts, RefusalError
from .logits import require_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Stepper

#: Dropping the tail, and restoring a saved state; the cheaper way first.
_WAYS: Final = ("trim", "checkpoint")
#: Largest change of a logit when the same tokens are decoded again after a rollback.
_SAME_LOGITS: Final = 1e-3


def find_way_back(
    stepper: Stepper, memory: str, rollback: str, use: Callable[[str], None]
) -> Facts:
    """The context's memory and the first way that rolls it back; the context is left empty.

    A rollback of `auto` allows both ways, `trim` or `checkpoint` one. Raises RefusalError if no
    allowed way works, or the logits are not numbers.
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
        + ("by dropping its tail" if rollback == "trim" else "by any way that was tried"),
    )


def _comes_back(stepper: Stepper) -> bool:
    """Whether the same tokens give the same logits after a rollback."""
    try:
        stepper.begin([0], fresh=True)
        stepper.mark()
        first = stepper.decode([0, 0], 1).copy()
        require_finite(first.max())
        stepper.keep(1)
        again = stepper.decode([0, 0], 1)
        return bool(np.abs(again - first).max() < _SAME_LOGITS)
    except RefusalError as err:
        if err.kind == "non-finite":
            raise  # NaN differs from itself even after a sound rollback
        return False
