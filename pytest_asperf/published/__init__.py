"""Published findings in pytest: a plugin on pytest's hooks, asperf's hooks and public fixtures."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_asperf import Hardware
    from pytest_asperf.analysis.verdict import JudgedRecord
    from pytest_asperf.records.kinds import Noted

_MARKER = "finding"
_FIXTURE = "_asperf_finding"


@pytest.fixture
def _asperf_finding(request: pytest.FixtureRequest, hardware: Hardware) -> Callable[[], None]:
    """Judges the published figures of a finding that nothing measures live."""
    from pytest_asperf.published.session import judges_recorded

    return judges_recorded(request.node, request.param, hardware)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; reject a project's findings that no test could use."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(id): the published finding that the test measures; without a measurement its "
        "published figures are judged",
    )
    _check(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each finding that has no live test."""
    if _FIXTURE in metafunc.fixturenames:
        from pytest_asperf.published.session import parametrize

        parametrize(metafunc, _FIXTURE)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Judge findings by their published figures if nothing is measured.

    Last, as -m selects by the live tests' markers.
    """
    if any(map(_is_on_a_finding, items)):
        from pytest_asperf.published.session import replace_by_recorded

        replace_by_recorded(config, items, _is_on_a_finding)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Reject a project's findings that no test could use."""
    if not hasattr(session.config, "workerinput"):  # a worker's error would look like a crash
        _check(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if its finding is about other hardware, engines or models."""
    if _is_on_a_finding(item):
        from pytest_asperf.published.session import require_scope

        require_scope(item)


@pytest.hookimpl(optionalhook=True)  # -p no:asperf leaves this plugin alone
def pytest_asperf_judged(item: pytest.Item, record: JudgedRecord) -> JudgedRecord | None:
    """Label the verdict with its finding; excuse it if it is no failure of this machine."""
    if not (_is_on_a_finding(item) or _FIXTURE in getattr(item, "fixturenames", ())):
        return None
    from pytest_asperf.published.session import labelled

    return labelled(item, record)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put on a skipped test's report which finding was not tried, and why."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _is_on_a_finding(item):
        from pytest_asperf.published.session import mark_untried

        mark_untried(item, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_asperf_summary(terminalreporter: TerminalReporter, noted: list[Noted]) -> None:
    """Print the findings in a table of their own."""
    from pytest_asperf.published.table import print_findings

    print_findings(terminalreporter, noted)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name each finding that was not tried, with `-v`."""
    if terminalreporter.config.get_verbosity() > 0:
        from pytest_asperf.published.table import print_untried

        print_untried(terminalreporter)


def _check(config: pytest.Config) -> None:
    from pytest_asperf.plugin.stash import opened_session

    session = opened_session(config)
    if session and (session.settings.findings or session.settings.published_figures):
        from pytest_asperf.plugin.parsing import usage_errors
        from pytest_asperf.published.session import findings_of

        with usage_errors():
            findings_of(config)


def _is_on_a_finding(item: Any) -> bool:
    """True if a test measures a finding; other projects have markers of that name too."""
    from pytest_asperf.plugin import measures

    if getattr(item, "callspec", None) and _FIXTURE in item.callspec.params:
        return True
    return item.get_closest_marker(_MARKER) is not None and measures(item)
