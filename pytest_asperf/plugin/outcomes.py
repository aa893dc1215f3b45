"""From a test's exception to pytest's report: PASS, FAIL, INCONCLUSIVE or INVALID."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from pytest_asperf.analysis.verdict import JudgedRecord, Outcome, Verdict
from pytest_asperf.config.setting_rules import Inconclusive
from pytest_asperf.errors import AsperfError, escaped, printable
from pytest_asperf.plugin.carried import add_properties, records_of, worker_of
from pytest_asperf.plugin.session import Session
from pytest_asperf.plugin.skips import inability, reason_of
from pytest_asperf.plugin.stash import take_notes
from pytest_asperf.records.codec import encode
from pytest_asperf.records.kinds import AnyRecord, Noted
from pytest_asperf.records.taken import broken_record
from pytest_asperf.report.claims_table import brief_text
from pytest_asperf.report.lines import lines
from pytest_asperf.report.verdict_text import VerdictError, claim_line, claim_text, short_note
from pytest_asperf.report.wrapping import reporter_columns, wrapped

#: Words and colours of outcomes that pytest does not have: category, letter, word, markup.
_STATUS: Final[Mapping[str, tuple[str, str, tuple[str, Mapping[str, bool]]]]] = {
    "INCONCLUSIVE": ("inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})),
    "INVALID": ("invalid", "V", ("INVALID", {"purple": True})),
}
#: Those of pytest's own outcomes; the word gets the figures.
_PYTESTS: Final[Mapping[str, tuple[str, str, tuple[str, Mapping[str, bool]]]]] = {
    "passed": ("passed", ".", ("PASSED", {"green": True})),
    "failed": ("failed", "F", ("FAILED", {"red": True})),
}
_RERUN: Final = "run {} of the test; the runs before do not count"
#: Lines of an error, but for its place; `-v` has all.
_MOST_LINES: Final = 6
#: Lines of a verdict on a terminal, below its place and the user's own line.
_MOST_TOLD: Final = 5
#: For a verdict that fails no test, and never looks like a pass: letter, colour.
_EXCUSED_STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "FAIL": ("f", "red"),
    "INCONCLUSIVE": ("i", "yellow"),
    "INVALID": ("v", "purple"),
}


def settle(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    session: Session | None,
) -> None:
    """Put a test's verdict and its measurements on its report, which is changed in place.

    There is no session if its settings were invalid.
    """
    extras: Any = report  # attributes of the report travel with it, through xdist too
    run: int = getattr(item, "execution_count", 1)  # pytest-rerunfailures counts the runs of a test
    rows = _of_run(run, take_notes(item, call.start))
    error = call.excinfo.value if call.excinfo is not None and report.failed else None
    _mark(extras, call, session)
    if reason := inability(item, error):
        _skip(item, report, reason)
        extras.asperf_skipped, error = ("test", reason), None
    if isinstance(error, AsperfError) and error.breaks_measurement:
        rows.append(broken_record(item.nodeid, error))
    rows = [_as_plugins_have_it(item, row) for row in rows]
    if rows:
        extras.asperf_rows = [encode(row) for row in rows]
        extras.asperf_machine = session and session.tell_machine()
        # The report of the test's tear-down gets them from there.
        add_properties(item, rows, run)
    if isinstance(error, AsperfError):
        _show_parts(item, call, report, error)
    elif isinstance(error, VerdictError):
        _shorten(item, report, error)
    if isinstance(error, VerdictError):
        record = _as_plugins_have_it(item, error.verdict.plain())
        if isinstance(record, Verdict) and record.excused:
            _excuse(report, error, record.source)
            return
    outcome = _outcome(error)
    if outcome is None:
        return
    extras.asperf_outcome = outcome
    if session and isinstance(error, VerdictError) and outcome == Outcome.INCONCLUSIVE:
        _soften(item, report, f"{outcome}: {_in_short(error)}", session.settings.inconclusive)


def _of_run(run: int, rows: list[AnyRecord]) -> list[AnyRecord]:
    """The rows; those of a rerun are marked."""
    if run == 1:
        return rows
    return [replace(row, note=f"{row.note}\n{_RERUN.format(run)}".strip()) for row in rows]


def without_earlier_runs(reports: Iterable[Any], report: Any) -> list[Any]:
    """The reports without those of earlier runs of the same test, which a rerun replaces."""

    def is_replaced(earlier: Any) -> bool:
        same = (earlier.nodeid, worker_of(earlier)) == (report.nodeid, worker_of(report))
        return same and getattr(earlier, "rerun", 0) < report.rerun

    return [one for one in reports if not is_replaced(one)]


def _skip(item: pytest.Item, report: pytest.TestReport, reason: str) -> None:
    path, line, _ = item.location
    report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, f"Skipped: {reason}")


def _mark(extras: Any, call: pytest.CallInfo[None], session: Session | None) -> None:
    """Put on a report that its test waited, or why it was skipped."""
    if call.excinfo is not None and (skipped := reason_of(call.excinfo.value)):
        extras.asperf_skipped = skipped
    if session and session.notify.take_waited():
        extras.asperf_waited = True


def _show_parts(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, error: AsperfError
) -> None:
    """Show an error's four parts and the user's own line; the other frames are ours."""
    if not _is_auto(item.config):
        return
    lines = _fitted(str(error).splitlines(), item.config, below=" " * 18)
    if item.config.get_verbosity() <= 0 and (more := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES - 1 :] = [f"({more + 1} more lines with -v)"]
    if call.when == "call" and call.excinfo is not None:
        own = [entry for entry in call.excinfo.traceback if entry.path == item.path]
        lines += [
            f"{item.location[0]}:{entry.lineno + 1}: {type(error).__name__}" for entry in own[-1:]
        ]
    # Such as the inputs that Hypothesis drew.
    notes = map(escaped, "\n".join(getattr(error, "__notes__", ())).splitlines())
    report.longrepr = "\n".join([*lines, *_fitted(notes, item.config, below=" " * 4)])


def _is_auto(config: pytest.Config) -> bool:
    """True if pytest chooses the style of failures; `-p no:terminal` has no such option."""
    return bool(config.getoption("tbstyle", "auto") == "auto")


def _fitted(
    lines: Iterable[str], config: pytest.Config, *, below: str, most: int | None = None
) -> list[str]:
    """Lines broken between words for a terminal, at most so many; files get them as they are."""
    width = reporter_columns(config.pluginmanager.get_plugin("terminalreporter"))
    if width is None:
        return list(lines)
    parts = [part for line in lines for part in wrapped(line, width, below=below)]
    if most is not None and len(parts) > most:
        last, *_ = wrapped(parts[most - 1], width - len(" …"))
        parts[most - 1 :] = [f"{last} …"]
    return parts


def _shorten(item: pytest.Item, report: pytest.TestReport, error: VerdictError) -> None:
    """Show a verdict in few lines; pytest's short summary has the assertion.

    The figures are in the table of assertions.
    """
    shown: Any = report.longrepr
    if getattr(shown, "reprcrash", None) is None:
        return
    shown.reprcrash.message = printable(claim_text(error.verdict.plain()))
    if _is_auto(item.config) and item.config.get_verbosity() <= 0:
        entry = shown.reprtraceback.reprentries[-1]
        claim = [line for line in entry.lines if line.startswith(">")]
        told = (f"E   {line}" for line in short_note(error.verdict.plain()))
        # The run record comes last: the lines above the table have the models with their hashes
        # too.
        fitted = _fitted(told, item.config, below=f"E   {'':14}", most=_MOST_TOLD)
        entry.lines = [*claim[-1:], *fitted]
        entry.style, entry.reprfuncargs = "short", None
        shown.reprtraceback.reprentries = [entry]
        shown.chain = [(shown.reprtraceback, shown.reprcrash, None)]


def _in_short(error: VerdictError) -> str:
    return printable(claim_line(error.verdict.plain()))


def _outcome(error: BaseException | None) -> str | None:
    if isinstance(error, VerdictError) and error.verdict.plain().outcome in _STATUS:
        return str(error.verdict.plain().outcome)
    if isinstance(error, AsperfError) and error.breaks_measurement:
        return str(Outcome.INVALID)
    return None


def _soften(
    item: pytest.Item, report: pytest.TestReport, reason: str, inconclusive: Inconclusive
) -> None:
    if inconclusive == "fail":
        return
    if inconclusive == "skip":
        _skip(item, report, reason)
        return
    extras: Any = report
    report.outcome, extras.wasxfail = "skipped", reason


def _as_plugins_have_it(item: pytest.Item, record: AnyRecord) -> AnyRecord:
    """A judged record as a plugin's hook returns it; others as they are."""
    if not isinstance(record, JudgedRecord):
        return record
    changed: AnyRecord | None = item.ihook.pytest_asperf_judged(item=item, record=record)
    return record if changed is None else changed


def _excuse(report: pytest.TestReport, error: VerdictError, source: str) -> None:
    """Report a verdict as it is, and no test as failed."""
    extras: Any = report
    verdict = f"{source} {error.verdict.plain().outcome}"
    report.outcome = "skipped"
    extras.asperf_excused = verdict
    extras.wasxfail = f"{verdict}: {_in_short(error)}"


def status(report: Any) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Pytest's category, letter and word for an outcome of ours."""
    if hasattr(report, "asperf_excused"):
        source, outcome = report.asperf_excused.rsplit(maxsplit=1)
        letter, colour = _EXCUSED_STATUS[outcome]
        return report.asperf_excused, letter, (f"{outcome} ({source})", {colour: True})
    told = hasattr(report, "asperf_told")
    figures = "" if told else brief_text(lines(Noted("", one) for one in records_of(report)))
    if hasattr(report, "asperf_outcome"):
        found = _STATUS.get(report.asperf_outcome) if report.failed else None
    else:
        found = _PYTESTS.get(report.outcome) if report.when == "call" else None
    if found is None or not figures:
        return found
    category, letter, (word, markup) = found
    return category, letter, (f"{word} {figures}", markup)
