"""Fixtures of the core's tests that those of the plugin need."""

from tests.commands.conftest import run_asperf
from tests.commands.test_compare import compare
from tests.reliability.test_fuzz import ground

__all__ = ["compare", "ground", "run_asperf"]
