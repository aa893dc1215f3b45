"""How a context is rolled back: rollback of the model, and tried once before it is relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .engine import Facts, RefusalError
from .logits import require_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Stepper

#: By forgetting the tail, and by taking back a state that was saved; the cheaper one first.
_WAYS: Final = ("trim", "checkpoint")
#: Most that a logit may move when the same tokens are decoded again after a rollback.
_SAME_LOGITS: Final = 1e-3


def find_way_back(
    stepper: Stepper, memory: str, rollback: str, use: Callable[[str], None]
) -> Facts:
    """How a context is rolled back, having tried it, and leave the context empty.

    Args:
        stepper: the context.
        memory: of what kind its memory is.
        rollback: `auto`, or `trim` or `checkpoint` to insist on one way.
        use: makes the stepper go one way from now on.

    Raises:
        RefusalError: no way that may be used works, or the logits are no numbers.
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
        + ("by forgetting its tail" if rollback == "trim" else "by any way that was tried"),
    )


def _comes_back(stepper: Stepper) -> bool:
    """Tell whether the same tokens give the same logits after a rollback."""
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
            raise  # NaN differs from itself, however well it comes back
        return False
