"""Claims for other programs: CSV, Bencher's Metric Format, and github-action-benchmark's list.

None of the receivers knows INCONCLUSIVE or INVALID, and a value without an alert looks like a pass
there. So every claim is exported as a number that is 0 for a PASS alone, and the value of a claim
that was neither shown nor refuted has a name of its own. What is INVALID has no value.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.errors import printable
from pytest_asperf.records.codec import encode
from pytest_asperf.report.json_report import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.report.json_report import Claim
    from pytest_asperf.report.report_data import ReportData

#: How far from a PASS each outcome is.
_NOT_PASSED: Final = {"PASS": 0, "INCONCLUSIVE": 1, NOT_RUN: 2, "INVALID": 3, "FAIL": 4}
_FACTS: Final = ("time", "host", "machine", "version")
#: What a spreadsheet takes for the beginning of a formula; in some countries in full width.
_FORMULA: Final = (*"=+-@\uff1d\uff0b\uff0d\uff20", "\t", "\r")
_LONGEST: Final = 2000
#: Of a benchmark's name, in Bencher.
_NAME: Final = 1024
_RATE: Final = "tok/s"


def comma_separated(reports: Sequence[ReportData]) -> bytes:
    """One line for each claim, with the facts of its session."""
    lines = [
        {
            "report": report.name,
            **{key: dict(report.facts).get(key, "") for key in _FACTS},
            **encode(claim),
        }
        for report in reports
        for claim in report.claim_table
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(dict.fromkeys(("report", *_FACTS, *COLUMNS)))
    writer.writerows([_cell(value) for value in line.values()] for line in lines)
    return out.getvalue().encode()


def _cell(value: object) -> object:
    """A number as it is; a text on one line that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    text = printable(value, _LONGEST)
    return f"'{text}" if text.startswith(_FORMULA) else text


def bencher(reports: Sequence[ReportData]) -> bytes:
    """Bencher's Metric Format: benchmarks, each with its measures."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for name, claim in _named(reports):
        found.setdefault(name, {})["asperf-not-passed"] = {"value": _NOT_PASSED[claim.outcome]}
        if _has_value(claim):
            keys = {"value": claim.value, "lower_value": claim.low, "upper_value": claim.high}
            known: dict[str, object] = {
                key: value for key, value in keys.items() if value is not None
            }
            found.setdefault(_of_outcome(name, claim), {})[_measure(claim)] = known
    return _json(found)


def github_benchmark(reports: Sequence[ReportData]) -> bytes:
    """The list that github-action-benchmark takes as `customSmallerIsBetter`."""
    entries: list[dict[str, object]] = []
    for name, claim in _named(reports):
        told = printable(f"{claim.outcome}: {claim.claim} {claim.limit}", _LONGEST)
        extra = f"{told}\n{printable(claim.measured, _LONGEST)}"
        code = {"name": f"{name}: not passed", "unit": "0 is PASS", "extra": extra}
        entries.append(code | {"value": _NOT_PASSED[claim.outcome]})
        if (cost := _cost(claim)) and _has_value(claim):
            entries.append({"name": _of_outcome(name, claim), **cost, "extra": extra})
    return _json(entries)


def _named(reports: Sequence[ReportData]) -> Iterator[tuple[str, Claim]]:
    """Each claim on what was measured, with a name that is the same in the next session."""
    seen: dict[str, int] = {}
    for report in reports:
        for claim in report.claim_table:
            if claim.source != "live":  # published figures do not change
                continue
            whole = f"{claim.machine} {claim.test} {claim.claim}".lstrip()
            name = printable(whole, _NAME - 40)
            seen[name] = seen.get(name, 0) + 1
            yield f"{name} ({seen[name]})" if seen[name] > 1 else name, claim


def _has_value(claim: Claim) -> bool:
    return claim.value is not None and claim.outcome not in {"INVALID", NOT_RUN}


def _of_outcome(name: str, claim: Claim) -> str:
    return f"{name} [INCONCLUSIVE]" if claim.outcome == "INCONCLUSIVE" else name


def _measure(claim: Claim) -> str:
    """The measure's slug; Bencher's own are in other units."""
    unit = "".join(c if c.isalnum() else "-" for c in printable(claim.unit or "ratio", 40))
    return f"asperf-{unit.lower().strip('-')}"


def _cost(claim: Claim) -> dict[str, object] | None:
    """The value as something that is better if it is smaller; None if it is not."""
    value, unit = claim.value, claim.unit
    if unit == _RATE and value:
        return {"value": 1e3 / value, "unit": "ms/token", **_range(claim, 1e3 / value**2)}
    if claim.at_least is None and claim.at_most is not None:
        return {"value": value, "unit": unit or "ratio", **_range(claim, 1.0)}
    return None


def _range(claim: Claim, scale: float) -> dict[str, str]:
    low, high = claim.low, claim.high
    return {} if low is None or high is None else {"range": f"± {scale * (high - low) / 2:.3g}"}


def _json(data: object) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
