"""Token NLL and KLD from logits, in blocks, so that memory is bounded for any vocabulary.

NLL = ln Σ exp(z) - z[token]. KLD(base ‖ q) = Σ p_base (ln p_base - ln p_q), computed as
lse_q - lse_base - Σ p_base (z_q - z_base): the difference of logits is small where the
distributions are close, so single precision keeps its digits where they are needed.

All models' logits of a chunk are processed together, block by block: the baseline's probabilities
of a block are computed once, used for every quantization while they are in the cache, and never
kept. A baseline in another process writes them to a file.

Log-probabilities that a program saved are used as they are: the cut-off at the minimum makes their
sum differ from 1, and normalising them again would add that to every NLL.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .engine import LoadedModel, RefusalError
from .logits import LARGEST_LOGIT, require_preference
from .priority import usable_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Vector = NDArray[np.float64]
    Indices = NDArray[np.intp]
    Weigh = Callable[[Matrix, Matrix], tuple[Indices, Vector, Vector]]

#: Elements of one block, for each thread: so short that its arrays stay in a core's caches, and so
#: long that 16 threads do not wait for the interpreter's lock after each call of numpy.
_BLOCK_ELEMENTS: Final = 2**17

#: Saved log-probabilities at or below it have no weight in KLD (as in llama-perplexity): below it a
#: file has its minimum.
_LEAST_LOG_PROBABILITY: Final = -16.0
#: A token's largest NLL: PPL of a larger mean is no double.
_MOST_NLL: Final = 700.0


class ChunkScorer:
    """Scores chunks with the models that `find` gives by name."""

    def __init__(self, find: Callable[[str], LoadedModel]) -> None:
        self._find = find
        # A thread for each core: none computes a model while logits are scored.
        self._n_threads = usable_cores()
        self._threads = ThreadPoolExecutor(self._n_threads)

    def score(
        self,
        models: list[str],
        tokens: list[int],
        first: int,
        concurrency: int,
        following: Sequence[int] = (),
        *,
        keep: str = "",
        against: str = "",
    ) -> dict[str, dict[str, Any]]:
        """Score positions from `first` on with every model, so many at a time.

        The first model's logits are written to the file `keep`. With `against`, a file from another
        process replaces the first model, and every model is compared with it.

        A GPU computes the chunk that follows while this one is scored. The result has for each
        model `{"nll": [n floats]}`, in nats; for those after the first, which are compared with
        it, also `"kld"`, in nats, and `"same_top"`, booleans.
        """
        loaded = [self._find(name) for name in models]
        base = loaded[0]
        is_alone = len(models) == 1 and not keep and not against
        if is_alone and (nll := base.nll(tokens, first)) is not None:
            return {models[0]: {"nll": nll}}
        # The last position's logits predict a token of the next chunk, which is not scored.
        n_scored = len(tokens) - 1 - first
        targets = np.asarray(tokens[first + 1 :], np.intp)
        # Threads suffice: the engine and numpy both work outside the interpreter's lock.
        with ThreadPoolExecutor(max(1, concurrency)) as pool:
            logits = list(pool.map(lambda model: model.logits(tokens, first)[:n_scored], loaded))
            if keep:
                _keep(logits[0], Path(keep))
            if against:
                logits.insert(0, np.load(against, mmap_mode="r"))
            names = ["the baseline", *models] if against else models
            for name, matrix in zip(names, logits, strict=True):
                if matrix.shape != logits[0].shape:
                    what = f"{name} and {names[0]} differ in vocabulary size"
                    raise RefusalError("vocabulary", what)
            seen = loaded if following else ()
            ahead = [pool.submit(model.look_ahead, following, first) for model in seen]
            weigh = _saved if base.facts.get("log_probabilities") else _softmax
            by_model = self._score_chunk(logits, targets, weigh)
            for done in ahead:
                done.result()
        return dict(zip(models, by_model[bool(against) :], strict=True))

    def _score_chunk(
        self, logits: Sequence[Matrix], targets: Indices, weigh: Weigh
    ) -> list[dict[str, Any]]:
        """Score logits of the shape (n, n_vocab); the targets are the tokens that followed."""
        shape = len(logits), len(targets)
        nll, kld, same_top = np.empty(shape), np.empty(shape), np.empty(shape, np.bool_)

        def fill(rows: slice) -> None:
            scored = _score_block([matrix[rows] for matrix in logits], targets[rows], weigh)
            for model, scores in enumerate(scored):
                nll[model, rows], kld[model, rows], same_top[model, rows] = scores

        for _ in self._threads.map(fill, _blocks(*logits[0].shape, n_threads=self._n_threads)):
            pass
        names = ("nll", "kld", "same_top")
        base, *levels = (
            dict(zip(names, columns, strict=True))
            for columns in zip(nll.tolist(), kld.tolist(), same_top.tolist(), strict=True)
        )
        return [{"nll": base["nll"]}, *levels]


def _keep(logits: Matrix, path: Path) -> None:
    """Write logits whole or not at all: processes that share a model write the same file."""
    own = path.with_name(f"{os.getpid()}.npy")
    np.save(own, logits)
    own.replace(path)


def _blocks(n_rows: int, n_vocab: int, *, n_threads: int) -> Iterator[slice]:
    rows = math.ceil(min(_BLOCK_ELEMENTS * n_threads / n_vocab, n_rows / n_threads))
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))


def _score_block(
    blocks: Sequence[Matrix], targets: Indices, weigh: Weigh
) -> Iterator[tuple[Vector, Vector, NDArray[np.bool_]]]:
    """For each model NLL, KLD and same top; the baseline's own last two are 0 and true."""
    base, *levels = blocks
    every = np.arange(len(targets))
    weights, scratch = np.empty_like(base), np.empty_like(base)
    base_top, base_sum, base_lse = weigh(base, weights)
    base_nll = _required(base_lse - base[every, targets])
    yield base_nll, np.zeros(len(base)), np.ones(len(base), np.bool_)
    for level in levels:
        top, _, lse = weigh(level, scratch)
        nll = _required(lse - level[every, targets])
        np.subtract(level, base, out=scratch)
        drift = np.einsum("ij,ij->i", weights, scratch) / base_sum
        if not np.isfinite(drift).all():  # -∞ in one of them, or in both
            np.maximum(level, -LARGEST_LOGIT, out=scratch)
            scratch -= np.maximum(base, -LARGEST_LOGIT)
            drift = np.einsum("ij,ij->i", weights, scratch) / base_sum
        yield nll, lse - base_lse - drift, top == base_top


def _required(nll: Vector) -> Vector:
    """The NLL of each token; an error if one is too large for a PPL."""
    if (nll >= _MOST_NLL).any():
        raise RefusalError("broken-logits", f"a token of the text has an NLL of {nll.max():.4g}")
    return nll


def _softmax(block: Matrix, powers: Matrix) -> tuple[Indices, Vector, Vector]:
    """Write exp(z - max) of each row to `powers`; the top tokens, sums and log-sum-exps."""
    top = block.argmax(axis=1)
    peak = block[np.arange(len(block)), top]
    np.subtract(block, peak[:, None], out=powers)
    np.exp(powers, out=powers)
    total = powers.sum(axis=1, dtype=np.float64)
    log_total = np.log(total)
    require_preference(-log_total, block.shape[1])
    return top, total, log_total + peak


def _saved(block: Matrix, powers: Matrix) -> tuple[Indices, Vector, Vector]:
    """Normalise log-probabilities: the sums are 1, and their logarithms 0, by definition."""
    np.exp(block, out=powers)
    powers[block <= _LEAST_LOG_PROBABILITY] = 0.0
    return block.argmax(axis=1), np.ones(len(block)), np.zeros(len(block))
