"""Every format of a report, from a checked JSON report."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.config.setting_rules import ReportFormat, ReportTarget
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.report.formats import WRITERS, bencher, comma_separated, github_benchmark, write
from pytest_asperf.report.json_report import COLUMNS
from pytest_asperf.report.report_data import OUTCOMES, read_report_file
from tests.report import sample_reports as samples

_FORMULAE = st.tuples(st.sampled_from("=+-@\uff1d x"), st.text(max_size=20)).map("".join)


def test_every_format_has_a_writer() -> None:
    """Every format of the option can be written."""
    assert set(WRITERS) == set(get_args(ReportFormat))


@pytest.mark.parametrize("form", [*WRITERS])
def test_every_format_is_written_from_a_stored_report(tmp_path: Path, form: Any) -> None:
    """A file that was written once is enough for all others, for any names in it."""
    (tmp_path / "r.json").write_text(json.dumps(samples.whole()))
    (report,) = read_report_file(tmp_path / "r.json")
    path = tmp_path / "out"
    write(ReportTarget(form, path), [report])
    content = path.read_text("utf-8")
    assert "9999" in content
    assert "\x1b" not in content
    if form == "json":
        assert json.loads(content) == samples.whole()


def test_json_is_of_one_session(tmp_path: Path) -> None:
    """Two reports are not one."""
    with pytest.raises(ConfigError, match="needs one report, not 2"):
        write(ReportTarget("json", tmp_path / "r.json"), [samples.read([])] * 2)


def _csv(*rows: AnyRecord) -> list[dict[str, str]]:
    text = comma_separated([samples.read([("t.py::t", row) for row in rows])]).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_a_line_for_each_claim() -> None:
    """Numbers are the report's own, the session's facts are in each line; no rows give a head."""
    claimed = samples.claimed("m", 10)
    rate, slow = _csv(samples.rates("m"), claimed, samples.gate(1.3))
    assert float(rate["value"]) == claimed.figures[0].estimate.point
    assert (rate["outcome"], slow["outcome"], rate["host"]) == ("PASS", "FAIL", "box")
    assert float(slow["at_most"]) == 1.05
    head = comma_separated([samples.read([])]).decode()
    facts = ("time", "host", "machine", "version")
    assert head == ",".join(dict.fromkeys(["report", *facts, *COLUMNS])) + "\r\n"


@settings(max_examples=40, deadline=None)
@given(_FORMULAE)
def test_no_cell_is_a_formula(name: str) -> None:
    """A formula of a spreadsheet begins with an apostrophe; a negative number does not."""
    (line,) = _csv(samples.below(name, -0.02, 0.01))
    assert not any(
        value.startswith(("=", "+", "@", "\uff1d", "\t", "\r")) for value in line.values()
    )
    assert float(line["value"]) == -0.02
    assert line["subject"].removeprefix("'") == printable(name)


def _open() -> list[AnyRecord]:
    """An assertion of each outcome that is no pass, after one that is."""
    rows = [samples.claimed("m", limit) for limit in (10, 84, 9999)]
    return [*rows, samples.invalid(), samples.not_run()]


def test_benchers_format_shows_no_open_claim_as_a_pass() -> None:
    """Only a PASS is 0; an undecided one has its value under another name, a broken one none."""
    report = samples.read([(f"t{n}", row) for n, row in enumerate(_open())])
    found = json.loads(bencher([report]))
    by_test = {name.split()[0]: found[name] for name in found if "[" not in name}
    codes = [measures["asperf-not-passed"]["value"] for measures in by_test.values()]
    assert codes == [0, 1, 4, 3, 2]
    valued = [name.split()[0] for name, measures in found.items() if "asperf-tok-s" in measures]
    assert valued == ["t0", "t1", "t2"]
    assert "asperf-tok-s" not in by_test["t1"]
    (undecided,) = (name for name in found if "[INCONCLUSIVE]" in name)
    estimate = report.claims[1].figures[0].estimate
    assert found[undecided] == {
        "asperf-tok-s": {
            "value": estimate.point,
            "lower_value": estimate.low,
            "upper_value": estimate.high,
        }
    }


def test_the_list_of_github_action_benchmark_is_smaller_is_better() -> None:
    """A rate becomes time, every assertion has a code, and a larger-is-better one has no value."""
    rows = [*_open(), samples.gate(1.3)]
    report = samples.read([(f"t{n}", row) for n, row in enumerate(rows)])
    found = {entry["name"]: entry for entry in json.loads(github_benchmark([report]))}
    codes = [entry["value"] for name, entry in found.items() if name.endswith("not passed")]
    assert codes == [0, 1, 4, 3, 2, 4]
    rate = report.claims[0].figures[0].estimate.point
    values = {name.split()[0]: entry for name, entry in found.items() if "not passed" not in name}
    assert values["t0"].items() >= {"value": 1e3 / rate, "unit": "ms/token"}.items()
    assert values["t5"]["unit"] == "ratio"
    assert values.keys() == {"t0", "t1", "t2", "t5"}
    assert any("t1 " in name and name.endswith("[INCONCLUSIVE]") for name in found)
    assert {entry["extra"].partition(":")[0] for entry in found.values()} == set(OUTCOMES)


def test_recorded_figures_are_not_exported() -> None:
    """They are no measurement of this machine, and never change."""
    row = replace(samples.claimed("m", 10), source="recorded")
    report = samples.read([("t", row)])
    assert (json.loads(bencher([report])), json.loads(github_benchmark([report]))) == ({}, [])
