"""`assert_placement` in a test that takes no fixture of ours, and beside `energy`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.hardware.compute_plan import ComputePlan, parse_plan
from pytest_asperf.hardware.meters.meter import Counter, Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"
PERIOD_S = 0.01
CLAIM = """
def test_it():
    assert_placement("m.mlpackage", {})
"""


@pytest.fixture
def planned(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a Mac whose plan is a recorded one."""

    def read(path: Path, *, units: str, function: str | None) -> ComputePlan:
        text = (RECORDED / "prefill_on_ane.json").read_text().replace("\n", "")
        return parse_plan(text, where=f"{path} {units}", function=function)

    monkeypatch.setattr("pytest_asperf.api.placement.read_plan", read)
    return project


def test_a_plan_against_its_limits(
    planned: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Each claim has its line and its row, a PASS too, though the test takes no fixture."""
    planned.test(CLAIM.format('"ANE", at_least="90%"'), name="test_a")
    planned.test(CLAIM.format('"ANE", at_least=0.95'), name="test_b")
    planned.test(CLAIM.format('"GPU", at_most="1%"'), name="test_c")
    found = [(row["outcome"], row["subject"]) for row in rows()]
    assert found == [
        ("PASS", "m.mlpackage is planned on ANE"),
        ("FAIL", "m.mlpackage is planned on ANE"),
        ("PASS", "m.mlpackage is planned on GPU"),
    ]
    result = planned.run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["✗  m.mlpackage is planned on ANE *≥ 95 % *35 operations *"])
    result.stdout.fnmatch_lines(
        [
            "E   FAIL * m.mlpackage is planned on ANE: 93.84 %, wanted ≥ 95 %",
            "3 claims: 2 PASS, 1 FAIL",
        ]
    )


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ('"ANE"', "*assert_placement: a share without a plan, or a plan without a share*"),
        ('"ANE", at_least="95"', "*at_least: '95' is not a usable limit*"),
        ('"NPU", at_least="95%"', "*unknown device 'NPU'*"),
        ('"ANE", at_least="95%", units="CPU_AND_ANE"', "*did you mean 'CPU_AND_NE'?*"),
        ('"ANE", at_least="95%", function="prefil"', "*has no function prefil with costs*"),
    ],
)
def test_what_is_no_claim_is_refused(planned: Project, claim: str, message: str) -> None:
    """A limit, a device and a function that there are."""
    planned.test(CLAIM.format(claim))
    planned.run().stdout.fnmatch_lines([message])


@pytest.mark.skipif("sys.platform == 'darwin'", reason="Core ML plans here")
def test_elsewhere_it_is_skipped(project: Project) -> None:
    """With the reason and what to do; a path that is none is an error there too."""
    (project.path / "m.mlpackage").mkdir()
    project.test(CLAIM.format('"ANE", at_least="95%"'), name="test_a")
    project.test(CLAIM.format('"ANE", at_least="95%"').replace("m.ml", "n.ml"), name="test_b")
    result = project.run("-rs")
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*n.mlpackage is no Core*", "SKIPPED*Core ML plans nothing on Linux; run this on the Mac*"]
    )


def test_a_run_by_its_counters(planned: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plan or with one; a share of a run is refused, as no plan gives it."""

    def read_j() -> float:
        return 2.0 * PERIOD_S * (time.monotonic() // PERIOD_S)

    meter = Meter((Counter("ANE (IOReport)", "ane", read_j), Counter("CPU", "cpu", read_j)))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    monkeypatch.setattr("pytest_asperf.measure.metered._QUIET_S", 0.0)
    monkeypatch.setattr("pytest_asperf.hardware.meters.trace.LEAST_WINDOW_S", 0.05)
    planned.script("f16", takes_s={"generate": 0.005}, tg_ns_per_token=10**7)
    head = '@pytest.mark.quant("F16")\ndef test_it(energy):\n    '
    for number, claim in enumerate(
        (
            'assert_placement(energy("tg8"), "ANE")',
            'assert_placement("m.mlpackage", "ANE", at_least="90%", observed=energy("tg8"))',
            'assert_placement(energy("tg8"), "ANE", at_least="90%")',
        )
    ):
        planned.test(head + claim, name=f"test_{number}")
    result = planned.run("-v")
    # The counter rises as much on the idle machine, and nothing counts the GPU's energy.
    assert not result.parseoutcomes().get("passed")
    result.stdout.fnmatch_lines_random(
        [
            "*GPU energy: unavailable: nothing here measures it*",
            "*plan: PASS, 93.84 %, wanted at least 90 %*",
            "*a share without a plan, or a plan without a share*",
            "*fake:F16 ran on ANE * every rung *",
            "*m.mlpackage ran on ANE * every rung *",
        ]
    )
    assert "PASS fake:F16" not in result.stdout.str()
