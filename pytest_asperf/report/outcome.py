"""From what a test raised to what pytest reports: four outcomes, never three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import AsperfError, VerdictError
from pytest_asperf.report.rows import broken_row
from pytest_asperf.stash import take_notes
from pytest_asperf.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_asperf.settings import Inconclusive

#: Words and colours of the outcomes that pytest does not know: category, letter, word, markup.
_STATUS: Final[Mapping[str, tuple[str, str, tuple[str, Mapping[str, bool]]]]] = {
    "INCONCLUSIVE": ("inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})),
    "INVALID": ("invalid", "V", ("INVALID", {"purple": True})),
}


def settle(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    inconclusive: Inconclusive,
) -> None:
    """Put a test's verdict and its measurements on its report.

    Args:
        item: the test.
        call: what happened in this phase.
        report: pytest's report of it, changed in place.
        inconclusive: what becomes of a test that could not be decided.
    """
    extras: Any = report  # attributes of the report travel with it, through xdist too
    rows = take_notes(item)
    error = call.excinfo.value if call.excinfo is not None and report.failed else None
    if isinstance(error, AsperfError) and error.breaks_measurement:
        rows.append(broken_row(item.name, error))
    if rows:
        extras.asperf_rows = [row.as_dict() for row in rows]
    if error is None:
        return
    if isinstance(error, AsperfError) and item.config.getoption("tbstyle") == "auto":
        # The four parts say it all; the frames are ours, not the user's.
        report.longrepr = str(error)
    outcome = _outcome(error)
    if outcome is None:
        return
    extras.asperf_outcome = outcome
    if outcome == Outcome.INCONCLUSIVE and inconclusive != "fail":
        _soften(item, report, str(error), inconclusive)


def _outcome(error: BaseException) -> str | None:
    if isinstance(error, VerdictError) and error.verdict.outcome in _STATUS:
        return str(error.verdict.outcome)
    if isinstance(error, AsperfError) and error.breaks_measurement:
        return str(Outcome.INVALID)
    return None


def _soften(
    item: pytest.Item, report: pytest.TestReport, reason: str, inconclusive: Inconclusive
) -> None:
    report.outcome = "skipped"
    first_line = reason.partition("\n")[0]
    if inconclusive == "xfail":
        extras: Any = report
        extras.wasxfail = f"reason: {first_line}"
    else:
        path, line, _ = item.location
        report.longrepr = (path, (line or 0) + 1, f"Skipped: {first_line}")


def status(report: Any) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Return pytest's category, letter and word for an outcome of ours."""
    return _STATUS.get(report.asperf_outcome) if report.failed else None
