import json
import runpy
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.hardware.in_force import Hardware
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.records.kinds import Noted
from pytest_asperf.records.report import SCHEMA, Meta, Report
from pytest_asperf.report.json_report import document, serialise
from pytest_asperf.report.session_meta import SessionMeta
from tests.report import sample_reports as samples

_META = Meta(version="0.1.0")


def test_the_document() -> None:
    """It is versioned, has the session's facts, and has each row under its test."""
    noted = (Noted("test_x.py::test_y", samples.rates("μ:Q8_0")),)
    whole = Report(meta=_META, headline=("asperf: live",), rows=noted)
    written = json.loads(serialise(document(whole)))
    assert written["schema"] == SCHEMA
    assert written["headline"] == ["asperf: live"]
    (row,) = written["rows"]
    assert row.items() >= {"test": "test_x.py::test_y", "kind": "throughput"}.items()
    assert row["ran"]["model"] == "μ:Q8_0"


def test_the_schema_and_the_page_are_those_of_the_types() -> None:
    """No key is written without an explanation; docs/reference.py makes both."""
    made = runpy.run_path("docs/json_schema.py")
    assert json.loads(made["schema_text"]()) == samples.SCHEMA
    page = Path("docs/json.md").read_text("utf-8")
    assert made["tables"]() in page
    keys = {key for row in samples.whole()["rows"] for key in row}
    assert {key for key in keys if f"`{key}`" not in page} == set()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_refused(number: float) -> None:
    """NaN in a report would be a file that other programs cannot read."""
    record = replace(samples.speculation("d → t", 0.1, 3.0), alone_rate=None, drafting=number)
    whole = Report(meta=_META, headline=(), rows=(Noted("t", record),))
    with pytest.raises(ValueError, match="JSON compliant"):
        serialise(document(whole))


def test_claims_are_flat() -> None:
    """Each verdict is one object without objects in it, and names its row."""
    noted: list[samples.Noting] = [
        ("t", samples.rates("m")),
        ("t", samples.claimed("m", 10)),
        ("u", samples.invalid()),
    ]
    written = samples.report(noted)
    sound, broken = written["assertions"]
    assert not any(isinstance(value, dict | list) for value in (*sound.values(), *broken.values()))
    assert sound["value"] == written["rows"][1]["figures"][0]["estimate"]["point"]
    expected = {"row": 1, "outcome": "PASS", "at_least": 10, "at_most": None, "unit": "tok/s"}
    assert sound.items() >= expected.items()
    assert (sound["model"], sound["sha256"]) == ("fake:Q8_0", "abc")
    assert sound.keys() == samples.SCHEMA["$defs"]["Assertion"]["properties"].keys()
    assert (broken["value"], broken["outcome"], broken["row"]) == (None, "INVALID", 2)


def test_the_command_repeats_one_test_with_the_sessions_options() -> None:
    """Words that a shell would split are quoted."""
    (claim,) = samples.report([("test_x.py::test_y[a b]", samples.invalid())])["assertions"]
    assert claim["repeat"] == "pytest 'test_x.py::test_y[a b]' --asperf-seed=7"


def test_a_command_without_arguments_has_no_options() -> None:
    """Not an error: `report` may be configured, and pytest run without a word."""
    meta = SessionMeta(
        "1", (), 0.0, 1.0, None, Hardware(Machine(os="Linux", arch="x", cpu_brand=None))
    )
    assert (meta.facts().command, meta.facts().options) == ("pytest", ())


def test_measurements_have_every_run() -> None:
    """A record for each model and variant, with run record and every count and time."""
    noted: list[samples.Noting] = [("t", samples.rates("m")), ("t", samples.level("m:Q8_0", 0.01))]
    written = samples.report([*noted, ("t", samples.gate(1.3)), ("t", samples.invalid())])
    rate, level, base, candidate = written["measurements"]
    assert rate.keys() == samples.SCHEMA["$defs"]["Entry"]["properties"].keys()
    assert rate["runs"] == written["rows"][0]["runs"]
    stated = {"engine": "llama-cpp-python 0.3.36", "backend": "CPU", "threads": 2}
    assert rate.items() >= {**stated, "model": "m", "workload": "tg16", "unit": "tok/s"}.items()
    assert level["runs"] == written["rows"][1]["chunks"]
    compared = written["rows"][2]["compared"]
    assert [base["variant"], candidate["variant"]] == ["baseline", "candidate"]
    assert [base["value"], candidate["value"]] == compared["medians"]
    assert candidate.items() >= {**stated, "row": 2, "sha256": "0" * 64}.items()
    assert candidate["runs"][-1] == {
        "pair": len(compared["pairs"]) - 1,
        "n_tokens": 4,
        "parts": 1,
        "elapsed_ns": compared["pairs"][-1]["candidate"][-1],
        "energy_nj": None,
    }
    rates = [1e9 * run["n_tokens"] / run["elapsed_ns"] for run in base["runs"]]
    assert statistics.median(rates) == base["value"]


def test_a_gate_repeats_as_a_whole() -> None:
    """Its command is not pytest's, and its options are in it."""
    noted: list[samples.Noting] = [("tg16 fake", samples.gate(1.3))]
    options = ["a", "b", "--seed=7"]
    (claim,) = samples.report(noted, command="asperf gate a b", options=options)["assertions"]
    assert claim["repeat"] == "asperf gate a b --seed=7"
