"""`asperf placement` on saved plans."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.hardware.compute_plan import ComputePlan, parse_plan
from tests.commands.conftest import Ended

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac with a saved plan, of a model that was rejected at first."""

    def read(path: Path, *, units: str, function: str | None) -> ComputePlan:
        text = (RECORDED / f"{path.stem}.json").read_text().replace("\n", "")
        return parse_plan(text, "ANECCompile() FAILED", where=units, function=function)

    monkeypatch.setattr("pytest_asperf.hardware.compute_plan.read_plan", read)


def test_shares_and_the_rest(run_asperf: Callable[..., Ended]) -> None:
    """Each device's share, the part outside the Neural Engine, and unknown parts of a run."""
    shown = run_asperf("placement", "prefill_on_ane.mlpackage").stdout
    assert "93.84 % of the cost, 32 of 35 operations" in shown
    assert "not on ANE (CPU)  4.97 %, ios17.linear" in shown
    assert "ANECCompile() FAILED" in shown
    assert "unavailable: observed=energy(…) was not given" in shown
    shown = run_asperf("placement", "two_functions.mlpackage", "--function=decode").stdout
    assert "62 % [50, 70] of the cost, 1 of 4 operations" in shown


def test_json(run_asperf: Callable[..., Ended]) -> None:
    """Operations and shares as data."""
    words = ("matmul_on_cpu.mlpackage", "--units=CPU_AND_NE", "--report=json:-")
    answer = json.loads(run_asperf("placement", *words).stdout)
    assert answer["shares"]["CPU"]["point"] == 1.0
    assert answer["operations"][2] == {"operator": "ios17.matmul", "device": "CPU", "weight": 0.37}
    assert answer["made"] == "coremltools 9.0, units CPU_AND_NE"
