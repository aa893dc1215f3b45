"""A project in which pytest runs, as the tests of the core's plugin have it."""

from __future__ import annotations

from tests.plugin.conftest import _described_once, _undisturbed, described, live, project, rows

__all__ = ["_described_once", "_undisturbed", "described", "live", "project", "rows"]
