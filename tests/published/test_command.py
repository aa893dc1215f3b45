import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytest_asperf.cli import app
from tests.commands.test_completion import offered


def test_the_table_names_every_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asperf findings` ends with the count, and fits 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["findings"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "PASS" in lines[-2]
    assert "INVALID" in lines[-2]
    assert max(map(len, lines)) <= 80


def test_a_projects_own_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files in asperf.toml count here too, and a mistake in them is reported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asperf.toml").write_text('findings = ["mine.toml"]\n')
    result = CliRunner().invoke(app, ["findings"])
    assert "mine.toml cannot be read" in result.output


def _listed(*words: str) -> list[dict[str, Any]]:
    """Return the findings that the command lists as JSON."""
    result = CliRunner().invoke(app, ["findings", "--report=json:-", *words])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)
    return found


def test_json_lists_every_finding_with_what_it_rests_on() -> None:
    """Ids are unique, and each names its verdict, its tables and the figures of its interval."""
    found = _listed()
    assert len({item["id"] for item in found}) == len(found) > 50
    assert {item["verdict"] for item in found} == {"PASS", "FAIL", "INCONCLUSIVE", "INVALID"}
    assert all(item["tables"] and item["rests_on"] for item in found)


def test_findings_are_chosen_by_verdict_and_hardware() -> None:
    """The verdict in any case; a filter by hardware keeps findings about any."""
    every, failed, about = _listed(), _listed("--verdict=fail"), _listed("--hardware=m2ultra")
    assert failed == [item for item in every if item["verdict"] == "FAIL"]
    assert [item for item in every if not item["hardware"]] == [
        item for item in about if not item["hardware"]
    ]
    named = [item["hardware"] for item in about if item["hardware"]]
    assert len(named) > 20
    assert all("m2ultra-76" in names for names in named)
    assert len(about) < len(every)


def test_one_finding_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statement, expected verdict, figures with their spread, document, and the live command."""
    monkeypatch.chdir(tmp_path)
    text = CliRunner().invoke(app, ["findings", "q4-quarter-size"]).output
    for part in (
        "q4-quarter-size: Q4_K_M takes 75 % less memory than FP16",
        "FAIL, as the guide's own table gives 69 %",
        "69.33 % [68.90, 69.77]",
        "15.0 GB  (mac-guide/ram/8b/fp16; spread: not published)",
        "Guide to LLM inference on Apple Silicon",
        "pytest --pyargs pytest_asperf.findings -k test_q4_k_m_takes_a_quarter",
    ):
        assert part in text


def test_what_is_claimed_live_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion that is not the statement, and one that two machines' reports decide."""
    monkeypatch.chdir(tmp_path)
    for finding, part in (
        ("ram-60-percent", "asserted live  this model keeps to 60 % of this machine's memory"),
        (
            "m2ultra-twice-m2pro",
            "asperf compare of two machines' reports: tg of m2ultra over m2pro",
        ),
        ("m5-ttft-four-times", "ttft of m5 over m4, at most 4x"),
    ):
        assert part in CliRunner().invoke(app, ["findings", finding]).output


def test_a_mistyped_id_is_answered_with_the_nearest() -> None:
    """The error names the id that was meant."""
    result = CliRunner().invoke(app, ["findings", "q4-quater-size"])
    assert "did you mean 'q4-quarter-size'?" in result.output


def test_the_page_takes_no_choice() -> None:
    """A page of all findings is not one of some."""
    result = CliRunner().invoke(app, ["findings", "--report=md:-", "--verdict=FAIL"])
    assert "--report md: is the page of all findings" in result.output


@pytest.mark.parametrize(
    ("words", "some"), [(("sd-he",), ["sd-headline"]), (("--verdict", "INV"), ["invalid"])]
)
def test_findings_and_verdicts_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], some: list[str]
) -> None:
    """A shell completes the id of a finding, and a verdict in any case."""
    monkeypatch.chdir(tmp_path)
    assert offered("findings", *words) == some


def test_a_refused_configuration_offers_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself reports the fault."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asperf.toml").write_text("chunks = 'many'")
    assert offered("findings", "") == []
