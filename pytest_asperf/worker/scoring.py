"""Token NLL and KLD from logits, in blocks, so that memory is bounded for any vocabulary.

NLL = ln Σ exp(z) - z[token]. KLD(base ‖ q) = Σ p_base (ln p_base - ln p_q), computed as
lse_q - lse_base - Σ p_base (z_q - z_base): the difference of logits is small where the
distributions are close, so single precision keeps its digits where they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Vector = NDArray[np.float64]

#: Elements of one block: 1 MiB of float32 stays in the second-level cache between the passes.
_BLOCK_ELEMENTS: Final = 2**18


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline's distribution over one chunk, kept in memory for the levels above it.

    Attributes:
        logits: shape (n, n_vocab).
        probabilities: shape (n, n_vocab).
        lse: log-sum-exp of each row, shape (n,).
        top: the most probable token of each row, shape (n,).
    """

    logits: Matrix
    probabilities: Matrix
    lse: Vector
    top: NDArray[np.intp]


def _blocks(n_rows: int, n_vocab: int) -> Iterator[slice]:
    rows = max(1, _BLOCK_ELEMENTS // n_vocab)
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))


def _exp_rows(block: Matrix) -> tuple[Matrix, Vector]:
    """Return exp(z - max) of each row, and the row's log-sum-exp."""
    peak = block.max(axis=1)
    powers = np.exp(block - peak[:, None])
    return powers, peak + np.log(powers.sum(axis=1, dtype=np.float64))


def _nll(logits: Matrix, lse: Vector, targets: NDArray[np.intp]) -> Vector:
    return lse - logits[np.arange(len(targets)), targets]


def score_reference(
    logits: Matrix, targets: NDArray[np.intp], *, keep: bool
) -> tuple[dict[str, Any], Reference | None]:
    """Score the baseline's logits.

    Args:
        logits: shape (n, n_vocab); copied when kept.
        targets: the token that followed each position, shape (n,).
        keep: whether levels will be compared with it.

    Returns:
        `{"nll": [n floats]}` and, when kept, the reference.
    """
    lse = np.empty(len(logits), np.float64)
    if not keep:
        for rows in _blocks(*logits.shape):
            _, lse[rows] = _exp_rows(logits[rows])
        return {"nll": _nll(logits, lse, targets).tolist()}, None
    own = logits.copy()
    probabilities = np.empty_like(own)
    for rows in _blocks(*own.shape):
        powers, lse[rows] = _exp_rows(own[rows])
        np.divide(powers, powers.sum(axis=1, keepdims=True), out=probabilities[rows])
    reference = Reference(own, probabilities, lse, own.argmax(axis=1))
    return {"nll": _nll(own, lse, targets).tolist()}, reference


def score_against(
    reference: Reference, logits: Matrix, targets: NDArray[np.intp]
) -> dict[str, Any]:
    """Score a level's logits, and compare them with the baseline's of the same chunk.

    Returns:
        `{"nll": [...], "kld": [...], "same_top": [...]}`, n values each: nats, nats, booleans.
    """
    n_rows, n_vocab = logits.shape
    lse = np.empty(n_rows, np.float64)
    drift = np.empty(n_rows, np.float64)
    for rows in _blocks(n_rows, n_vocab):
        block = logits[rows]
        _, lse[rows] = _exp_rows(block)
        shift = block - reference.logits[rows]
        drift[rows] = np.einsum("ij,ij->i", reference.probabilities[rows], shift)
    return {
        "nll": _nll(logits, lse, targets).tolist(),
        "kld": (lse - reference.lse - drift).tolist(),
        "same_top": (logits.argmax(axis=1) == reference.top).tolist(),
    }
