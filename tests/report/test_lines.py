"""Records in words, and as plain data and back."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.analysis.limit_verdict import judge_below
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Subject, guarded
from pytest_asperf.errors import MeasurementError
from pytest_asperf.plugin.carried import noted_in
from pytest_asperf.records.codec import decode_as, encode
from pytest_asperf.records.kinds import AnyRecord, Noted
from pytest_asperf.records.taken import broken_record
from pytest_asperf.report.lines import Line, first_line
from tests.report import sample_reports as samples

RECORDS: dict[str, AnyRecord] = {
    "throughput": samples.rates("fake:Q8_0"),
    "quant": samples.level("fake:Q8_0", 0.01),
    "speculation": samples.speculation("d → t", 0.2, 3.0),
    "verdict": samples.claimed("fake:Q8_0", 10),
    "pairs": samples.gate(1.3),
    "broken": samples.not_run(),
}


def line(record: AnyRecord) -> Line:
    """The first line of a record."""
    return first_line(Noted("t", record))


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_survives_being_plain_data(kind: str) -> None:
    """Records through xdist and JSON are equal to the first ones."""
    data = json.loads(json.dumps(encode(RECORDS[kind]), allow_nan=False))
    found: AnyRecord = decode_as(AnyRecord, data)
    assert found == RECORDS[kind]
    assert encode(found) == data


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("kind", "song", "kind 'song' is unknown"),
        ("workload", 7, "7 is not a text"),
        ("runs", "many", "'many' is not a list"),
        ("estimate", [], "\\[\\] is not an object"),
    ],
)
def test_a_value_of_another_type_is_rejected(key: str, value: object, says: str) -> None:
    """Each value of a file is checked against the type that its key has."""
    data = encode(RECORDS["throughput"]) | {key: value}
    with pytest.raises((TypeError, ValueError), match=says):
        decode_as(AnyRecord, data)


def test_an_unknown_bound_is_null() -> None:
    """JSON has no infinity, and the estimate has it again."""
    half = Estimate(1.0, -math.inf, 1.5, 9, method="by hand", unit="MB")
    record = judge_below(half, 2.0, Subject("x", "live"))
    (figure,) = encode(record)["figures"]
    assert (figure["estimate"]["low"], figure["estimate"]["high"]) == (None, 1.5)
    assert figure["at_most"] == 2.0
    assert decode_as(AnyRecord, encode(record)) == record


def test_records_come_in_the_order_they_were_noted() -> None:
    """Pytest groups reports by outcome; records follow the clock."""
    reports = [
        SimpleNamespace(nodeid=name, start=start, asperf_rows=[encode(RECORDS["verdict"])])
        for name, start in (("late", 3.0), ("early", 1.0), ("middle", 2.0))
    ]
    assert [noted.test for noted in noted_in(reports)] == ["early", "middle", "late"]


def test_a_verdicts_line_names_what_its_interval_rests_on() -> None:
    """An exact figure has no basis."""
    subject = Subject("size of x", "recorded")
    sampled = Estimate(1.0, -math.inf, math.inf, 3, method="by hand", unit="MB")
    found = line(judge_below(sampled, 2.0, subject))
    assert (found.basis, found.outcome, found.source) == ("3 samples", "INCONCLUSIVE", "recorded")
    exact = judge_below(Estimate.exact(1.0, "MB"), 2.0, subject)
    assert line(exact).basis == ""


def test_a_broken_measurement_is_a_line() -> None:
    """It carries the error's first sentence, and no figure."""
    error = MeasurementError("it broke", why="w", remedy="r")
    found = line(broken_record("test_x.py::test_y", error))
    assert (found.subject, found.measured) == ("test_x.py::test_y", "it broke")
    assert (found.outcome, found.advice, found.figures) == ("INVALID", "r", ())


def test_what_tells_a_record_apart_is_in_its_name() -> None:
    """A measurement is named after its model, a verdict after its subject."""
    noted = [Noted("t", RECORDS[kind], apart="threads=2") for kind in ("throughput", "verdict")]
    assert [first_line(one).what for one in noted] == [
        "tg16 fake:Q8_0, threads=2",
        "tg16 fake:Q8_0, threads=2",
    ]


def test_what_a_guard_found_is_put_into_words_here() -> None:
    """A verdict has it among the details, once in a report that had it there; others in a note."""
    finding = Guard.SPREAD.finding("runs vary", "a CV of 5 %")
    found = guarded(judge_below(Estimate.exact(1.0, "MB"), 2.0, Subject("x", "live")), [finding])
    assert (found.guards, found.details) == ((finding,), ())
    assert line(found).details == (str(finding),)
    assert line(replace(found, details=("a", str(finding)))).details == ("a", str(finding))
    notes = {
        "throughput": "tg16 fake:Q8_0: spread: runs vary (a CV of 5 %)",
        "quant": "fake:Q8_0 vs F16: spread: runs vary (a CV of 5 %)",
        "speculation": "d → t: spread: runs vary (a CV of 5 %)",
    }
    for kind, note in notes.items():
        assert note in line(replace(RECORDS[kind], guards=(finding,), note="")).note  # type: ignore[arg-type]
