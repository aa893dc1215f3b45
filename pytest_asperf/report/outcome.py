"""From what a test raised to what pytest reports: four outcomes, never three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import AsperfError, VerdictError, printable
from pytest_asperf.report.rows import about_finding, broken_row
from pytest_asperf.stash import take_notes
from pytest_asperf.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_asperf.report.rows import Row
    from pytest_asperf.run import Run
    from pytest_asperf.settings import Inconclusive

#: Words and colours of the outcomes that pytest does not know: category, letter, word, markup.
_STATUS: Final[Mapping[str, tuple[str, str, tuple[str, Mapping[str, bool]]]]] = {
    "INCONCLUSIVE": ("inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})),
    "INVALID": ("invalid", "V", ("INVALID", {"purple": True})),
}
#: Of a verdict on recorded figures: it fails no test, and never looks like a pass.
_RECORDED_STATUS: Final[Mapping[str, tuple[str, str, tuple[str, Mapping[str, bool]]]]] = {
    "FAIL": ("recorded FAIL", "f", ("FAIL (recorded)", {"red": True})),
    "INCONCLUSIVE": ("recorded INCONCLUSIVE", "i", ("INCONCLUSIVE (recorded)", {"yellow": True})),
    "INVALID": ("recorded INVALID", "v", ("INVALID (recorded)", {"purple": True})),
}


def settle(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    run: Run | None,
) -> None:
    """Put a test's verdict and its measurements on its report.

    Args:
        item: the test.
        call: what happened in this phase.
        report: pytest's report of it, changed in place.
        run: the session's state; None where its settings were refused.
    """
    extras: Any = report  # attributes of the report travel with it, through xdist too
    rows = take_notes(item)
    error = call.excinfo.value if call.excinfo is not None and report.failed else None
    if isinstance(error, AsperfError) and error.breaks_measurement:
        rows.append(broken_row(item.nodeid, error))
    if rows and run is not None:
        rows = _about_finding(item, rows, run)
    if rows:
        extras.asperf_rows = [row.as_dict() for row in rows]
    if run and run.notify.take_waited():
        extras.asperf_waited = True
    if isinstance(error, AsperfError):
        _tell(item, call, report, error)
    elif isinstance(error, VerdictError):
        _shorten(report, error)
    if isinstance(error, VerdictError) and error.verdict.subject.source == "recorded":
        _soften_recorded(report, error)
        return
    outcome = _outcome(error)
    if outcome is None:
        return
    extras.asperf_outcome = outcome
    if run and isinstance(error, VerdictError) and outcome == Outcome.INCONCLUSIVE:
        _soften(item, report, f"{outcome}: {_in_short(error)}", run.settings.inconclusive)


def _tell(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, error: AsperfError
) -> None:
    """Show an error's four parts and the user's own line; the other frames are ours."""
    if item.config.getoption("tbstyle") != "auto":
        return
    lines = [str(error)]
    if call.when == "call" and call.excinfo is not None:
        own = [entry for entry in call.excinfo.traceback if entry.path == item.path]
        lines += [
            f"{item.location[0]}:{entry.lineno + 1}: {type(error).__name__}" for entry in own[-1:]
        ]
    report.longrepr = "\n".join(lines)


def _shorten(report: pytest.TestReport, error: VerdictError) -> None:
    """Have pytest's short summary say what was claimed and found, not the note's first line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = _in_short(error)


def _in_short(error: VerdictError) -> str:
    return printable(f"{error.verdict.claim}: {error.verdict.measured}")


def _outcome(error: BaseException | None) -> str | None:
    if isinstance(error, VerdictError) and error.verdict.outcome in _STATUS:
        return str(error.verdict.outcome)
    if isinstance(error, AsperfError) and error.breaks_measurement:
        return str(Outcome.INVALID)
    return None


def _soften(
    item: pytest.Item, report: pytest.TestReport, reason: str, inconclusive: Inconclusive
) -> None:
    if inconclusive == "fail":
        return
    report.outcome = "skipped"
    if inconclusive == "xfail":
        extras: Any = report
        extras.wasxfail = reason
    else:
        path, line, _ = item.location
        report.longrepr = (path, (line or 0) + 1, f"Skipped: {reason}")


def _about_finding(item: pytest.Item, rows: list[Row], run: Run) -> list[Row]:
    """Say of a verdict's row which published finding it is on."""
    if not any(row.outcome for row in rows):
        return rows
    from pytest_asperf.collect import finding_of  # noqa: PLC0415  # collect brings run's tier

    try:
        finding = finding_of(item)
    except AsperfError:  # the test's own set-up told it
        return rows
    if finding is None:
        return rows
    evidence = run.findings.evidence
    return [about_finding(row, finding, evidence) if row.outcome else row for row in rows]


def _soften_recorded(report: pytest.TestReport, error: VerdictError) -> None:
    """Report a verdict on recorded figures as expected: no test of this machine failed."""
    extras: Any = report
    report.outcome = "skipped"
    extras.asperf_recorded = str(error.verdict.outcome)
    extras.wasxfail = f"recorded {error.verdict.outcome}: {_in_short(error)}"


def status(report: Any) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Return pytest's category, letter and word for an outcome of ours."""
    if hasattr(report, "asperf_recorded"):
        return _RECORDED_STATUS.get(report.asperf_recorded)
    return _STATUS.get(report.asperf_outcome) if report.failed else None
