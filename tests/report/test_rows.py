from __future__ import annotations

import json
from types import SimpleNamespace

from pytest_asperf.analysis.limit_verdict import judge_below
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.errors import MeasurementError
from pytest_asperf.report.rows import ReportRow, broken_row, noted_rows, row_from_dict, verdict_row

ROW = ReportRow(
    "fake:Q8_0",
    "tg128",
    "40 tok/s [39, 41]",
    "5 samples",
    ran=(("model", "fake"), ("engine", "scripted")),
    raw={"runs": [{"n_tokens": 8, "elapsed_ns": 9}]},
)


def test_a_row_survives_being_plain_data() -> None:
    """What xdist and JSON carry is the same row again."""
    assert row_from_dict(json.loads(json.dumps(ROW.as_dict()))) == ROW


def test_rows_come_in_the_order_they_were_noted() -> None:
    """Pytest groups reports by outcome; rows follow the clock."""
    reports = [
        SimpleNamespace(nodeid=name, start=start, asperf_rows=[ROW.as_dict()])
        for name, start in (("late", 3.0), ("early", 1.0), ("middle", 2.0))
    ]
    assert [test for test, _ in noted_rows(reports)] == ["early", "middle", "late"]


def test_a_verdicts_row_names_what_its_interval_rests_on() -> None:
    """A figure without an interval has no bounds, and an exact one no basis."""
    subject = Subject("size of x", "recorded")
    sampled = Estimate(1.0, float("-inf"), float("inf"), 3, method="by hand", unit="MB")
    row = verdict_row(judge_below(sampled, 2.0, subject))
    assert (row.basis, row.outcome, row.source) == ("3 samples", "INCONCLUSIVE", "recorded")
    assert row.raw["figures"][0]["low"] is None
    assert verdict_row(judge_below(Estimate.exact(1.0, "MB"), 2.0, subject)).basis == ""


def test_one_known_bound_is_kept() -> None:
    """A gate that passes by its upper bound has it in the report, and no lower one."""
    half = Estimate(1.0, float("-inf"), 1.5, 9, method="by hand", unit="MB")
    (figure,) = verdict_row(judge_below(half, 2.0, Subject("x", "live"))).raw["figures"]
    assert (figure["low"], figure["high"], figure["at_most"]) == (None, 1.5, 2.0)


def test_a_broken_measurement_is_a_row() -> None:
    """It carries the error's first sentence, and no figure."""
    row = broken_row("test_x.py::test_y", MeasurementError("it broke", why="w", remedy="r"))
    assert (row.subject, row.measured, row.outcome) == ("test_x.py::test_y", "it broke", "INVALID")
