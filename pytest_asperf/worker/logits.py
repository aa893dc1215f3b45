"""Checks that logits are finite and not all equal, and counts of a row that JSON can carry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from .engine import GROUPS, LogitRow, RefusalError
from .sampling import MIN_P, TEMPERATURE, TOP_P

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The largest number of half precision, in which engines multiply: a logit beyond it is infinite as
#: soon as the same weights are read in another type. Sound models stay below 1,000.
LARGEST_LOGIT: Final = 65_504.0
#: Logits within this of one another are equal but for rounding.
_EQUAL: Final = 1e-4
#: Rounding of a logit that min-p keeps.
_ROUNDING: Final = 1e-3
#: The probability of a group without any: its logarithm must be finite.
_LEAST_SHARE: Final = 1e-30


def seen(row: NDArray[np.float32]) -> LogitRow:
    """Count the values in a row of logits; except minus infinity, with which models mask tokens."""
    numbers = row[np.isfinite(row)]
    peak = float(numbers.max()) if numbers.size else None
    return LogitRow(
        n_vocab=row.size,
        n_nan=int(np.count_nonzero(np.isnan(row))),
        n_inf=int(np.count_nonzero(np.isposinf(row))),
        peak=peak,
        is_flat=peak is not None and peak - float(numbers.min()) <= _EQUAL,
    )


def grouped(row: NDArray[np.float32]) -> list[float]:
    """The log-probabilities of `GROUPS` groups of tokens, in nats: a row short enough to be sent.

    A token's group is its id modulo `GROUPS`, so rows of two processes can be compared. The KLD of
    groups is at most that of tokens, and close to it, as few tokens have most of the probability.
    Logits that are no numbers, or all equal, are an error: two rows without any preference agree.
    """
    peak = float(row.max())
    require_sound(row, peak)
    powers = np.exp(row.astype(np.float64) - peak)
    sums = np.bincount(np.arange(row.size) % GROUPS, weights=powers, minlength=GROUPS)
    shares: list[float] = np.log(np.maximum(sums / powers.sum(), _LEAST_SHARE)).tolist()
    return shares


def flattened(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """The row scaled to a standard deviation of 1, so that no token is nearly certain."""
    scaled: NDArray[np.float32] = row / max(float(row[np.isfinite(row)].std()), _EQUAL)
    return scaled


def likeliest_share(row: NDArray[np.float32]) -> float:
    """How often the samplers of timed work choose the likeliest token of a row of logits."""
    shares = np.sort(np.exp(row.astype(np.float64) - row.max()))[::-1]
    shares /= shares.sum()
    before = np.cumsum(shares) - shares
    kept = shares[(before < TOP_P) & (shares >= MIN_P * shares[0])]
    return float(1 / ((kept / kept[0]) ** (1 / TEMPERATURE)).sum())


def is_allowed(row: NDArray[np.float32], token: int) -> bool:
    """True if the samplers of timed work can choose a token, by a row of its logits."""
    return bool(row[token] >= row.max() + math.log(MIN_P) - _ROUNDING)


def require_finite(peak: float) -> None:
    """Reject a largest logit that is NaN, infinite, or beyond `LARGEST_LOGIT`."""
    if not abs(peak) <= LARGEST_LOGIT:
        raise RefusalError("broken-logits", f"the largest logit of a row is {peak:.4g}")


def require_sound(row: NDArray[np.float32], peak: float) -> None:
    """Reject a row of logits whose peak is not finite, or that are all equal."""
    require_finite(peak)
    # The first logit decides nearly always, so that timed rounds of speculation read no row again.
    if peak - row[0] <= _EQUAL and peak - row.min() <= _EQUAL:
        raise _flat(row.size)


def require_preference(likeliest: NDArray[np.floating], n_vocab: int) -> None:
    """Reject rows if the log-probability of the likeliest token is that of guessing evenly."""
    if likeliest.size and likeliest.min() + math.log(n_vocab) <= _EQUAL:
        raise _flat(n_vocab)


def _flat(n_vocab: int) -> RefusalError:
    return RefusalError("broken-logits", f"all {n_vocab} logits of a row are equal")
