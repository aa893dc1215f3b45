"""Tests of ours that were skipped: why, in one line of each kind at the end of the session."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import pytest

from pytest_asperf.errors import printable
from pytest_asperf.plugin.stash import session_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["gate", "finding", "test"]

_MOST_REASONS: Final = 3


def skip(kind: Kind, reason: str, *, because: str = "") -> NoReturn:
    """Skip a test, and have the end of the session say why.

    pytest's own list of skipped tests says `because` before the reason.
    """
    # A fixture's place is ours, and tells a reader of the summary nothing.
    skipped = pytest.skip.Exception(because + reason, _use_item_location=True)
    skipped.asperf_skipped = (kind, reason)  # type: ignore[attr-defined]
    raise skipped


def reason_of(error: BaseException | None) -> tuple[Kind, str] | None:
    """What `skip` skipped, and why; None for any other exception."""
    return getattr(error, "asperf_skipped", None)


def skip_lines(reports: Sequence[Any], config: pytest.Config) -> Iterator[str]:
    """A line for each kind of skipped tests, with the most frequent reasons.

    A last line says if all were skipped because the hardware in force is not this machine.
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
