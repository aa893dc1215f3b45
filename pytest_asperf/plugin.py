"""The hooks: each guards, imports what it needs, and delegates."""

# ruff: noqa: PLC0415  # loaded in every pytest run of its user's environment, used in few

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.config import MARKERS, add_options, was_configured
from pytest_asperf.fixtures import (
    _asperf_bench,
    _asperf_ref,
    hardware,
    ladder,
    model,
    perplexity,
    quant,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from _pytest.terminal import TerminalReporter

__all__ = [
    "_asperf_bench",
    "_asperf_ref",
    "hardware",
    "ladder",
    "model",
    "perplexity",
    "quant",
    "throughput",
]

_MARKER_NAMES = frozenset({"model", "quant", "quant_ladder", "hardware"})
_FIXTURE_NAMES = frozenset({"hardware", "ladder", "model", "perplexity", "throughput"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; read the options if any was given."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if was_configured(config):
        from pytest_asperf.stash import run_of

        run_of(config).check()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the engine's process."""
    from pytest_asperf.stash import opened_run

    if run := opened_run(config):
        run.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each rung of its ladder."""
    if metafunc.definition.get_closest_marker("quant_ladder"):
        from pytest_asperf.collect import parametrize_ladder

        parametrize_ladder(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Join the ladders that tests share."""
    if any(item.get_closest_marker("quant_ladder") for item in session.items):
        from pytest_asperf.stash import run_of

        run_of(session.config).plan_ladders(session.items)


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    """Say what will be measured with, if anything will."""
    if not any(_FIXTURE_NAMES & set(getattr(item, "fixturenames", ())) for item in items):
        return []
    from pytest_asperf.stash import run_of

    return run_of(config).headline()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse bad markers; skip what is meant for other hardware."""
    if any(mark.name in _MARKER_NAMES for mark in item.iter_markers()):
        from pytest_asperf.collect import check_item

        check_item(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put verdicts and measurements on the report."""
    report = yield
    from pytest_asperf.stash import opened_run

    if run := opened_run(item.config):
        from pytest_asperf.report.outcome import settle

        settle(item, call, report, run.settings.inconclusive)
    return report


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Give INCONCLUSIVE and INVALID letters of their own."""
    if not hasattr(report, "asperf_outcome"):
        return None
    from pytest_asperf.report.outcome import status

    return status(report)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the table and write the reports, if anything was measured."""
    reports: list[Any] = [
        report
        for group in terminalreporter.stats.values()
        for report in group
        if hasattr(report, "asperf_rows")
    ]
    if reports:
        from pytest_asperf.report.summary import summarise

        summarise(terminalreporter, reports)
