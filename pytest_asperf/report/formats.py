"""The formats of a report: their writers, from checked JSON reports; flat files among them."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.errors import CacheError, ConfigError, printable
from pytest_asperf.records.codec import encode
from pytest_asperf.records.report import of_each_machine
from pytest_asperf.report.json_report import COLUMNS, Assertion, document, serialise
from pytest_asperf.report.markdown import markdown
from pytest_asperf.report.page import page
from pytest_asperf.report.report_data import ReportData

Writer = Callable[[Sequence[ReportData]], bytes]

#: How far from a PASS each outcome is.
_NOT_PASSED: Final = {"PASS": 0, "INCONCLUSIVE": 1, NOT_RUN: 2, "INVALID": 3, "FAIL": 4}
_FACTS: Final = ("time", "host", "machine", "version")
#: Characters that begin a formula in a spreadsheet; in some countries in full width.
_FORMULA: Final = (*"=+-@\uff1d\uff0b\uff0d\uff20", "\t", "\r")
_LONGEST: Final = 2000
#: Part of a benchmark's name, in Bencher.
_NAME: Final = 1024
_RATE: Final = "tok/s"


def comma_separated(reports: Sequence[ReportData]) -> bytes:
    """One line for each assertion, with the facts of its session."""
    lines = [
        {
            "report": report.name,
            **{key: dict(report.facts).get(key, "") for key in _FACTS},
            **encode(one),
        }
        for report in reports
        for one in report.assertion_table
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
    for name, one in _named(reports):
        found.setdefault(name, {})["asperf-not-passed"] = {"value": _NOT_PASSED[one.outcome]}
        if _has_value(one):
            keys = {"value": one.value, "lower_value": one.low, "upper_value": one.high}
            known: dict[str, object] = {
                key: value for key, value in keys.items() if value is not None
            }
            found.setdefault(_of_outcome(name, one), {})[_measure(one)] = known
    return _json_cell(found)


def github_benchmark(reports: Sequence[ReportData]) -> bytes:
    """The list for github-action-benchmark's `customSmallerIsBetter`."""
    entries: list[dict[str, object]] = []
    for name, one in _named(reports):
        told = printable(f"{one.outcome}: {one.subject} {one.limit}", _LONGEST)
        extra = f"{told}\n{printable(one.measured, _LONGEST)}"
        code = {"name": f"{name}: not passed", "unit": "0 is PASS", "extra": extra}
        entries.append(code | {"value": _NOT_PASSED[one.outcome]})
        if (cost := _cost(one)) and _has_value(one):
            entries.append({"name": _of_outcome(name, one), **cost, "extra": extra})
    return _json_cell(entries)


def _named(reports: Sequence[ReportData]) -> Iterator[tuple[str, Assertion]]:
    """Each assertion on a measurement, with a name that is equal in the next session."""
    seen: dict[str, int] = {}
    for report in reports:
        for one in report.assertion_table:
            if one.source != "live":  # published figures do not change
                continue
            whole = f"{one.machine} {one.test} {one.subject}".lstrip()
            name = printable(whole, _NAME - 40)
            seen[name] = seen.get(name, 0) + 1
            yield f"{name} ({seen[name]})" if seen[name] > 1 else name, one


def _has_value(one: Assertion) -> bool:
    return one.value is not None and one.outcome not in {"INVALID", NOT_RUN}


def _of_outcome(name: str, one: Assertion) -> str:
    return f"{name} [INCONCLUSIVE]" if one.outcome == "INCONCLUSIVE" else name


def _measure(one: Assertion) -> str:
    """The measure's slug; Bencher's own are in other units."""
    unit = "".join(c if c.isalnum() else "-" for c in printable(one.unit or "ratio", 40))
    return f"asperf-{unit.lower().strip('-')}"


def _cost(one: Assertion) -> dict[str, object] | None:
    """The value as something that is better if it is smaller; None if it is not."""
    value, unit = one.value, one.unit
    if unit == _RATE and value:
        return {"value": 1e3 / value, "unit": "ms/token", **_range(one, 1e3 / value**2)}
    if one.at_least is None and one.at_most is not None:
        return {"value": value, "unit": unit or "ratio", **_range(one, 1.0)}
    return None


def _range(one: Assertion, scale: float) -> dict[str, str]:
    low, high = one.low, one.high
    return {} if low is None or high is None else {"range": f"± {scale * (high - low) / 2:.3g}"}


def _json_cell(data: object) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _json(reports: Sequence[ReportData]) -> bytes:
    whole = reports[0].whole
    is_one = all(report.whole is whole for report in reports)
    if not is_one or len(reports) != len(of_each_machine(whole)):
        raise ConfigError(
            f"json: needs one report, not {len(reports)}",
            why="a file is of one session",
            remedy="name one file, or write html, md or csv",
        )
    return serialise(document(whole))


#: The writer of each format.
WRITERS: Final[Mapping[str, Writer]] = {
    "json": _json,
    "html": page,
    "md": markdown,
    "csv": comma_separated,
    "bencher": bencher,
    "github-benchmark": github_benchmark,
}


def write(target: ReportTarget, reports: Sequence[ReportData]) -> None:
    """Write the reports to a file, or to the terminal; CacheError if it cannot be written."""
    content = WRITERS[target.format](reports)
    if target.is_terminal:
        sys.stdout.write(content.decode())
        return
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        target.path.write_bytes(content)
    except OSError as err:
        raise CacheError(
            f"the report {target.path} cannot be written: {err}",
            why="a program that reads it would find an older report, or none",
            remedy="name a file in a folder that exists and that you may write to",
        ) from err
