"""`asperf placement` on recorded plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_asperf.commands import placement
from pytest_asperf.hardware.compute_plan import ComputePlan, parse_plan

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac whose plan is a recorded one, of a model that was refused at first."""

    def read(path: Path, *, units: str, function: str | None) -> ComputePlan:
        text = (RECORDED / f"{path.stem}.json").read_text().replace("\n", "")
        return parse_plan(text, "ANECCompile() FAILED", where=units, function=function)

    monkeypatch.setattr("pytest_asperf.hardware.compute_plan.read_plan", read)


def test_shares_and_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    """Each device's share, what is not on the Neural Engine, and what is not known of a run."""
    placement.show_placement(Path("prefill_on_ane.mlpackage"))
    shown = capsys.readouterr().out
    assert "93.84 % of the cost, 32 of 35 operations" in shown
    assert "not on ANE (CPU)  4.97 %, ios17.linear" in shown
    assert "ANECCompile() FAILED" in shown
    assert "unavailable: observed=energy(…) was not given" in shown
    placement.show_placement(Path("two_functions.mlpackage"), function="decode")
    assert "62 % [50, 70] of the cost, 1 of 4 operations" in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Operations and shares as data."""
    placement.show_placement(Path("matmul_on_cpu.mlpackage"), units="CPU_AND_NE", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["shares"]["CPU"]["point"] == 1.0
    assert answer["operations"][2] == {"operator": "ios17.matmul", "device": "CPU", "weight": 0.37}
    assert answer["made"] == "coremltools 9.0, units CPU_AND_NE"
