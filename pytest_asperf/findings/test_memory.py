"""How much memory a model takes."""

from __future__ import annotations

import pytest

from pytest_asperf import Hardware, Model, assert_fits

pytestmark = pytest.mark.model("@target")


@pytest.mark.finding("ram-60-percent")
def test_weights_keep_to_60_percent(model: Model, hardware: Hardware) -> None:
    """The weights take at most 60 % of a memory that the system shares, and the rest fits too."""
    assert_fits(model, hardware)
