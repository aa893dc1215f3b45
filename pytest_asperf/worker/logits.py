"""Checks that logits are finite, and counts of a row that JSON can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .engine import LogitRow, RefusalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The largest number of half precision, in which engines multiply: a logit beyond it is infinite as
#: soon as the same weights are read in another type. Sound models stay below 1,000.
LARGEST_LOGIT: Final = 65_504.0


def seen(row: NDArray[np.float32]) -> LogitRow:
    """Count what a row of logits holds; not minus infinity, with which models mask tokens."""
    numbers = row[np.isfinite(row)]
    return LogitRow(
        n_vocab=row.size,
        n_nan=int(np.count_nonzero(np.isnan(row))),
        n_inf=int(np.count_nonzero(np.isposinf(row))),
        peak=float(numbers.max()) if numbers.size else None,
    )


def require_finite(peak: float) -> None:
    """Refuse a largest logit that is NaN, infinite, or beyond `LARGEST_LOGIT`."""
    if not abs(peak) <= LARGEST_LOGIT:
        raise RefusalError("non-finite", f"the largest logit of a row is {peak:.4g}")
