"""Hooks that other plugins and a project's conftest.py may have (docs/plugins.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_asperf.records.kinds import JudgedRecord, Noted


@pytest.hookspec(firstresult=True)
def pytest_asperf_judged(item: pytest.Item, record: JudgedRecord) -> JudgedRecord | None:
    """Give a verdict labels (`about`), or say why it fails no test (`excused`).

    Called for each verdict of a test, and for each measurement that broke. Return a changed copy,
    made with `dataclasses.replace`, or None to leave it as it is.
    """


@pytest.hookspec
def pytest_asperf_summary(terminalreporter: TerminalReporter, noted: list[Noted]) -> None:
    """Print verdicts in a form of your own before asperf's table; remove these from the list."""
