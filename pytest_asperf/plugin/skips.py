"""Tests of ours that were skipped: why, in one line of each kind at the end of the session."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import pytest

from pytest_asperf.errors import Advice, AsperfError, ElsewhereError, SlotError, printable
from pytest_asperf.plugin.parsing import marks_of
from pytest_asperf.plugin.stash import session_of

_MOST_REASONS: Final = 3


def skip(kind: str, reason: str, *, because: str = "") -> NoReturn:
    """Skip a test; the session's end prints the reason, with the number of each `kind`.

    pytest's own list of skipped tests has `because` before the reason.
    """
    # A fixture's place is in asperf, and is no help to a reader of the summary.
    skipped = pytest.skip.Exception(because + reason, _use_item_location=True)
    skipped.asperf_skipped = (kind, reason)  # type: ignore[attr-defined]
    raise skipped


def reason_of(error: BaseException | None) -> tuple[str, str] | None:
    """The skipped part and the reason of `skip`; None for any other exception."""
    return getattr(error, "asperf_skipped", None)


def inability(item: pytest.Item, error: BaseException | None) -> str:
    """Why a test cannot be measured here, or with the models named; empty if it can."""
    if isinstance(error, SlotError):
        return error.what
    if isinstance(error, ElsewhereError):
        return f"{error.what}; {error.remedy}"
    if not isinstance(error, AsperfError) or not error.is_unfit or not (slots := _slots(item)):
        return ""
    what = error.what.removeprefix(f"{item.nodeid}: ")
    return str(Advice(f"{what}; name another model", slots=f"{slots[0]}=MODEL"))


def _slots(item: pytest.Item) -> list[str]:
    """The model slots in a test's markers, the measured model's first."""
    try:
        marks = marks_of(item)
    except AsperfError:  # the test's own set-up reports it
        return []
    measured = [marks.model.address] if marks.model else []
    addresses = (*measured, *sorted(marks.addresses, key=str))
    return [address.slot for address in addresses if address.slot]


def skip_lines(reports: Sequence[Any], config: pytest.Config) -> Iterator[str]:
    """A line for each kind of skipped tests, with the most frequent reasons.

    A last line is printed if all were skipped because the selected hardware is not this machine.
    """
    skipped: dict[str, Counter[str]] = {}
    for report in reports:
        if hasattr(report, "asperf_skipped"):
            kind, reason = report.asperf_skipped
            skipped.setdefault(kind, Counter())[reason] += 1
    for kind, reasons in skipped.items():
        total = sum(reasons.values())
        texts = [
            printable(reason) + (f" ({count})" if len(reasons) > 1 else "")
            for reason, count in reasons.most_common(_MOST_REASONS)
        ]
        if others := len(reasons) - len(texts):
            texts.append(f"and {others} more (pytest -rs)")
        yield f"{total} {kind}{'s' * (total > 1)} skipped: {'; '.join(texts)}"
    none_ran = all(hasattr(report, "asperf_skipped") for report in reports)
    if none_ran and (elsewhere := session_of(config).elsewhere):
        yield f"nothing was measured: {printable(elsewhere)}"
