"""A project in which pytest runs with published findings; in those of the core it does without."""

import pytest

import tests.conftest
from tests.plugin.conftest import (
    _described_once,
    _undisturbed,
    described,
    live,
    metered,
    project,
    rows,
)

__all__ = ["_described_once", "_undisturbed", "described", "live", "metered", "project", "rows"]


@pytest.fixture(scope="session")
def plugins() -> list[str]:
    """The core's options, and the plugin of findings."""
    return [*tests.conftest.LOADED, "-ppytest_asperf.published"]
