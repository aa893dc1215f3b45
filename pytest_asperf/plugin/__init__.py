"""The hooks: each guards, imports its own needs, and delegates."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.plugin import fixtures, registration
from pytest_asperf.plugin.registration import MARKERS, add_options, only_lists, was_configured

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


_LADDERS = frozenset({"quant_ladder", "kv_ladder"})
_OUR_MARKERS = _LADDERS | {"speculative", "hardware"}
#: The key of `report.outcome` on a test's report.
_OURS = ("asperf_rows", "asperf_waited", "asperf_skipped")
#: Those that change a test's word.
_JUDGED = ("asperf_outcome", "asperf_excused", "asperf_rows")
_REPORTS = "asperf-reports"
#: Other projects have markers of these names: they are ours on a test that measures.
_COMMON_MARKERS = frozenset({"model", "quant"})


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the fixtures, and the hooks that others may have."""
    pluginmanager.register(fixtures, "asperf-fixtures")
    pluginmanager.add_hookspecs(registration)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; before xdist starts its workers, read the options if any was given."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Reports(config), _REPORTS)
    if config.getoption("dist", None) == "each":
        from pytest_asperf.plugin.fleet import Fleet

        config.pluginmanager.register(Fleet(config), "asperf-fleet")
    if was_configured(config) and _starts_xdist_workers(config):
        from pytest_asperf.plugin.parsing import usage_errors
        from pytest_asperf.plugin.stash import check_before_tests

        with usage_errors():
            check_before_tests(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the engine's process."""
    from pytest_asperf.plugin.stash import opened_session

    if session := opened_session(config):
        session.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each quantization of its sweep."""
    if any(map(metafunc.definition.get_closest_marker, _LADDERS)):
        from pytest_asperf.plugin.selection import parametrize_ladder

        parametrize_ladder(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Reject settings that no test could use; join the quant sweeps that tests share.

    An xdist worker with such an error would look crashed: there each test raises it.
    """
    items = [item for item in session.items if measures(item)]
    if not items and not was_configured(session.config):
        return
    from pytest_asperf.errors import AsperfError
    from pytest_asperf.plugin.parsing import usage_errors
    from pytest_asperf.plugin.selection import name_models, plan_ladders
    from pytest_asperf.plugin.stash import session_for

    with suppress(AsperfError) if _is_xdist_worker(session.config) else usage_errors():
        shared = session_for(session.config, (item.path for item in items))
        shared.check()
        name_models(shared, items)
        plan_ladders(session.config, items)
    if items and not _is_xdist_worker(session.config):
        end_as_by_ctrl_c(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Print the session's measuring conditions, if anything will be measured.

    Here, because the engine is started for it, and pytest calls this hook only if tests are to
    run: listings of tests, fixtures or markers start nothing that the project's file names.
    """
    config = session.config
    silent = config.get_verbosity() < 0
    terminal: TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if only_lists(config) or not any(map(measures, session.items)):
        return
    from pytest_asperf.plugin.stash import opened_session, session_of
    from pytest_asperf.report.wrapping import say

    if silent or _is_xdist_worker(config) or terminal is None:
        if shared := opened_session(config):
            shared.print_priority(is_asked=not silent and _is_xdist_worker(config))
        return
    lines = session_of(config).headline(brief=config.get_verbosity() == 0)
    whole = "; ".join([lines[0], *(line.removeprefix("asperf: ") for line in lines[1:])])
    for line in [whole] if len(whole) <= config.get_terminal_writer().fullwidth else lines:
        say(terminal, line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reject bad markers; skip tests for other hardware."""
    from pytest_asperf.plugin.stash import begin_test

    begin_test(item)
    marked = {mark.name for mark in item.iter_markers()}
    if marked & _OUR_MARKERS or (marked & _COMMON_MARKERS and measures(item)):
        from pytest_asperf.plugin.selection import check_item

        check_item(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End a test with its undecided assertion, or as an error if it measured and asserted none."""
    from pytest_asperf.plugin.stash import begin_call, end_of

    begin_call(item)
    try:
        result = yield
    finally:
        end = end_of(item)
    if end is not None:
        raise end
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End a tear-down that compared and did not assert as an error."""
    from pytest_asperf.plugin.stash import forgotten_by

    result = yield
    if (error := forgotten_by(item)) is not None:
        raise error
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put verdicts and measurements on the report."""
    from pytest_asperf.plugin.stash import has_notes, opened_session, require_none_caught

    with _without_frames(item.config, call):
        report = yield
    checked = pytest.CallInfo.from_call(
        lambda: require_none_caught(item, call, report), when=call.when
    )
    if checked.excinfo is not None:
        call.excinfo = checked.excinfo
        with _without_frames(item.config, call):
            report = pytest.TestReport.from_item_and_call(item, call)
    session = opened_session(item.config)
    if has_notes(item) or session or (call.excinfo and _is_ours(call.excinfo.value)):
        from pytest_asperf.plugin.outcomes import settle

        settle(item, call, report, session)
        benchmarks = item.config.pluginmanager.get_plugin("pytest-benchmark")
        is_asked_for = benchmarks and _was_benchmarked(item.config)
        if is_asked_for and hasattr(report, "asperf_rows") and not _is_xdist_worker(item.config):
            from pytest_asperf.plugin.carried import noted_in
            from pytest_asperf.report.benchmark_rows import add_rows

            add_rows(benchmarks, noted_in([report]))
    return report


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Give INCONCLUSIVE and INVALID letters of their own; with `-v` print the measurements."""
    if not any(hasattr(report, name) for name in _JUDGED):
        return None
    from pytest_asperf.plugin.outcomes import status

    return status(report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the requested reports, before the exit status is final."""
    config = session.config
    if _is_xdist_worker(config) or only_lists(config):
        return
    from pytest_asperf.plugin.stash import opened_session, session_of

    reports = _measured(config)
    if reports or opened_session(config):
        from pytest_asperf.engine_process.process import interrupts_later
        from pytest_asperf.plugin.report_files import write_reports

        try:
            with interrupts_later():
                write_reports(session, session_of(config), reports, _collector(config).began)
        except KeyboardInterrupt:
            session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the tables, if anything was measured."""
    from pytest_asperf.plugin.stash import opened_session

    config = terminalreporter.config
    reports, ours = _measured(config), _reports(config)
    session = opened_session(config)
    if session and (reports or session.unwritten or session.closing):
        from pytest_asperf.plugin.summary import summarise

        summarise(terminalreporter, session, reports, ours)
    if ours and config.get_verbosity() > -2:
        from pytest_asperf.plugin.skips import skip_lines
        from pytest_asperf.report.wrapping import say

        for line in skip_lines(ours, config):
            say(terminalreporter, f"asperf: {line}")
    if session and reports and config.get_verbosity() > -2:
        from pytest_asperf.plugin.summary import print_total

        print_total(terminalreporter, reports)


class _Reports:
    """Keeps the test reports that carry something of ours; a terminal need not be there."""

    def __init__(self, config: pytest.Config) -> None:
        self.reports: list[Any] = []
        self.began = time.time()
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read a report, of this process or of an xdist worker, when pytest has noted it."""
        if getattr(report, "rerun", 0):
            from pytest_asperf.plugin.outcomes import without_earlier_runs

            self.reports = without_earlier_runs(self.reports, report)
        if not any(hasattr(report, name) for name in _OURS):
            return
        if report.failed:
            from pytest_asperf.plugin.carried import name_failure

            name_failure(self._config, report)
        told: Any = report
        told.asperf_told = True
        if not self.reports and _starts_xdist_workers(self._config):
            from pytest_asperf.plugin.stash import meet_tests

            meet_tests(self._config, report)
            end_as_by_ctrl_c(self._config)  # only now there is something to lose
        self.reports.append(report)
        if hasattr(report, "asperf_rows") and not _is_xdist_worker(self._config):
            from pytest_asperf.plugin.report_files import store_so_far

            rows = [one for one in self.reports if hasattr(one, "asperf_rows")]
            store_so_far(self._config, rows, self.began)


def _collector(config: pytest.Config) -> _Reports:
    collector = config.pluginmanager.get_plugin(_REPORTS)
    return collector if isinstance(collector, _Reports) else _Reports(config)


def _reports(config: pytest.Config) -> list[Any]:
    return _collector(config).reports


def _measured(config: pytest.Config) -> list[Any]:
    """The test reports that carry rows, and an interrupted test's notes."""
    from pytest_asperf.plugin.stash import unreported

    reports = [report for report in _reports(config) if hasattr(report, "asperf_rows")]
    return [*reports, *unreported(config)]


def measures(item: pytest.Item) -> bool:
    """True if a test uses fixtures of ours, and not a project's own of the same names."""
    if getattr(item, "asperf_measures", False):
        return True
    info = getattr(item, "_fixtureinfo", None)
    used = info.name2fixturedefs.values() if info is not None else ()
    return any(defs[-1].func.__module__ == fixtures.__name__ for defs in used)


def _was_benchmarked(config: pytest.Config) -> bool:
    """True if an option of pytest-benchmark was given."""
    import os

    words = (*config.invocation_params.args, *config.getini("addopts"))
    given = " ".join(map(str, (*words, os.environ.get("PYTEST_ADDOPTS", ""))))
    return "--benchmark-" in given


@contextmanager
def _without_frames(config: pytest.Config, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep pytest from parsing each module of our errors' frames, none of which is shown."""
    option = config.option
    is_shortened = getattr(option, "tbstyle", "") == "auto"
    if not is_shortened or call.excinfo is None or not _is_ours(call.excinfo.value):
        yield
        return
    option.tbstyle = "value"
    try:
        yield
    finally:
        option.tbstyle = "auto"


def _is_ours(error: BaseException) -> bool:
    from pytest_asperf.errors import AsperfError

    return isinstance(error, AsperfError)


def _starts_xdist_workers(config: pytest.Config) -> bool:
    """True if this process starts xdist's workers, which collect and run the tests."""
    distributed = config.getoption("dist", "no") != "no" and config.getoption("tx", None)
    return bool(distributed) and not only_lists(config)


def _is_xdist_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def end_as_by_ctrl_c(config: pytest.Config) -> None:
    """Write the measurements on a termination, as on Ctrl-C, if no other handler does."""

    def restore(number: signal.Signals) -> None:
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
            config.add_cleanup(partial(restore, number))
