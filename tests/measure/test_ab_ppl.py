"""Two builds that make different tokens of a corpus are not compared."""

import pytest

from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.ab_ppl import _same_chunks


def test_equal_chunks_are_used() -> None:
    """Both score equal tokens."""
    assert _same_chunks([[1, 2]], [[1, 2]]) == [[1, 2]]


@pytest.mark.parametrize("candidate", [[[1, 3]], [[1, 2], [3, 4]], []])
def test_other_chunks_are_refused(candidate: list[list[int]]) -> None:
    """One other token, or another number of chunks, is a changed tokenizer."""
    with pytest.raises(MeasurementError, match="different tokens"):
        _same_chunks([[1, 2]], list(candidate))
