"""The traces of timed runs in a model's memory, as rows that are short enough to be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine import RefusalError, Revisitable, TakesSequences

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from .engine import LoadedModel


class Revisits:
    """Examines the models that `find` gives by name.

    Attributes:
        operations: by name, as a worker is asked for them.
    """

    def __init__(self, find: Callable[[str], LoadedModel]) -> None:
        self._find = find
        self.operations: dict[str, Callable[..., dict[str, Any]]] = {
            "run_revisit": self._revisit,
            "run_recompute": self._recompute,
            "run_together": self._together,
        }

    def _revisit(self, model: str, positions: list[int]) -> dict[str, Any]:
        """The traces of the last timed run; no rows if the engine does not show them."""
        loaded = self._find(model)
        if not isinstance(loaded, Revisitable):
            return {"n_held": None, "rows": {}}
        left = loaded.left_by_run()
        rows = {}
        for position in sorted(positions, reverse=True):
            if (row := left.row(position)) is None:
                break
            rows[str(position)] = _grouped(row)
        return {"n_held": left.n_held, "rows": rows}

    def _recompute(self, model: str, tokens: list[int], positions: list[int]) -> dict[str, Any]:
        """The rows of some positions of a text, computed anew."""
        loaded = self._find(model)
        if not isinstance(loaded, Revisitable):
            raise RefusalError("unsupported", "this engine shows no logits inside of a text")
        ascending = sorted(positions)
        rows = map(_grouped, loaded.recompute(tokens, ascending))
        return {"rows": dict(zip(map(str, ascending), rows, strict=True))}

    def _together(self, model: str, sequences: list[list[int]], n_prompt: int) -> dict[str, Any]:
        """The rows of sequences that are decoded together: of each, by position."""
        loaded = self._find(model)
        if not isinstance(loaded, TakesSequences):
            raise RefusalError("unsupported", "this engine takes one sequence at a time here")
        rows: list[list[list[float]]] = [[] for _ in sequences]
        for call in loaded.together(sequences, n_prompt):
            for of_one, more in zip(rows, call, strict=True):
                of_one.extend(map(_grouped, more))
        return {"rows": rows, "context": loaded.context}


def _grouped(row: NDArray[np.float32]) -> list[float]:
    from .logits import grouped  # noqa: PLC0415  # an engine that shows no rows needs no numpy

    return grouped(row)
