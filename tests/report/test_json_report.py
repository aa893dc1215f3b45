from __future__ import annotations

import json

import pytest

from pytest_asperf.report.json_report import SCHEMA, serialise
from pytest_asperf.report.rows import ReportRow


def test_the_document() -> None:
    """It is versioned, says what was measured with, and has each row under its test."""
    row = ReportRow("μ:Q8_0", "ΔPPL", "+1 %", "5 chunks", raw={"n": 5})
    document = json.loads(serialise([("test_x.py::test_y", row)], ["asperf: live"]))
    assert document["schema"] == SCHEMA
    assert document["headline"] == ["asperf: live"]
    assert document["rows"][0].items() >= {"test": "test_x.py::test_y", "model": "μ:Q8_0"}.items()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_refused(number: float) -> None:
    """NaN in a report would be a file that other programs cannot read."""
    with pytest.raises(ValueError, match="JSON compliant"):
        serialise([("test", ReportRow("m", "s", "", "", raw={"x": number}))], [])
