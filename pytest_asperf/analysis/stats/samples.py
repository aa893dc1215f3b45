"""Samples that an interval can be computed from, or a clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Values = Sequence[float] | NDArray[np.float64]
    Chunks = Sequence[Values]


def finite_array(values: Values, counted: str) -> NDArray[np.float64]:
    """The values as an array; MeasurementError without any, or with one that is not finite."""
    import numpy as np  # noqa: PLC0415  # guards import this module, and most need none

    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise nothing_measured(counted)
    if not np.isfinite(array).all():
        raise MeasurementError(
            f"{np.count_nonzero(~np.isfinite(array))} of {array.size} {counted} are not finite",
            why="a mean or median over them would hide that the measurement broke",
            remedy="look at the engine's log for failed decodes or overflow",
        )
    return array


def nothing_measured(counted: str) -> MeasurementError:
    """The error for an empty measurement."""
    return MeasurementError(
        f"no {counted}",
        why="a verdict needs a measurement",
        remedy="look at the engine's log for why it produced none",
    )


def unequal_work(what: str) -> MeasurementError:
    """The error for arms that did different work."""
    return MeasurementError(
        what,
        why="a paired comparison needs the same work in both arms",
        remedy="score the same chunks with both models, with the same tokenizer and context",
    )
