"""`assert_placement` in a test that takes no fixture of ours, and beside `energy`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.hardware.compute_plan import ComputePlan, parse_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"
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
        ('"ANE"', "*assert_placement: no limit*"),
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
