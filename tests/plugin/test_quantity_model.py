"""The facts of a model that need no timing: its disk space, and its Core ML placement."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.hardware.meters.meter import Counter, Meter
from tests.plugin.conftest import Project
from tests.power_samples import PERIOD_S

HEAD = '@pytest.mark.quant("F16")\ndef test_it(model, energy):\n    '
RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"


@pytest.fixture
def files(project: Project) -> Project:
    """Two files of 5 MB, a link to one of them, and a folder with a small one."""
    for name in ("big.bin", "other.bin"):
        (project.path / name).write_bytes(b"\1" * 5_000_000)
    (project.path / "link.bin").symlink_to("big.bin")
    (project.path / "folder").mkdir()
    (project.path / "folder" / "small.bin").write_bytes(b"\1" * 1000)
    return project


def test_room_against_a_limit(files: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """Shared files count once; the unit is the limit's; a path that does not exist has no size."""
    claims = {
        'assert model.disk_of("big.bin", "link.bin") <= "6 MiB"': "PASS",
        'assert model.disk_of("big.bin", "other.bin") <= "6 MB"': "FAIL",
        'assert model.disk_of("folder") <= 0.001': "PASS",
        'assert model.disk_of(model.path, "big.bin") <= "7 MB"': "PASS",
        'assert model.disk <= "1 MB"': "PASS",
        'assert model.disk_of("big.bin") / model.disk_of("folder") > "900%"': "PASS",
        'assert model.size < model.disk_of("big.bin")': "PASS",
    }
    files.claims(HEAD, claims)
    found = rows()
    assert [row["outcome"] for row in found] == list(claims.values())
    shared = found[0]
    assert shared["subject"] == "disk use of big.bin and link.bin"
    assert shared["measured"].startswith("4.7")
    assert shared["measured"].endswith(" MiB")
    assert ["counted once", "1 further names of them"] in shared["facts"]
    files.rejects(
        HEAD,
        {
            'assert model.disk_of("big.bin") <= "3 G"': "'3 G' is no limit in GiB",
            'assert model.disk_of("bigg.bin") <= "3 GB"': "bigg.bin: No such file or directory",
            'assert model.disk_of("big.bin") <= "3 s"': "GiB cannot be compared with s",
        },
    )


def test_a_plan_against_its_limits(planned: Project) -> None:
    """The share of the cost decides, and the report names the other operations."""
    claims = {
        'assert model.placement("ANE", "m.mlpackage") >= "90%"': ".",
        'assert model.placement("ANE", "m.mlpackage") >= 0.95': "F",
        'assert model.placement("GPU", "m.mlpackage") <= "1%"': ".",
        'assert model.placement("ANE", "m.mlpackage") > model.placement("GPU", "n.mlpackage")': ".",
    }
    planned.claims(HEAD, claims)
    result = planned.run()
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "E   FAIL * m.mlpackage is planned on ANE: 93.84 %, wanted ≥ 95 %",
            "✗  m.mlpackage is planned on ANE *≥ 95 % *35 operations *",
        ]
    )
    planned.rejects(
        HEAD,
        {
            'assert model.placement("ANE", "m.mlpackage") >= "95"': "'95' is not a usable limit",
            'assert model.placement("NPU", "m.mlpackage") >= "95%"': "unknown device 'NPU'",
            'assert model.placement("ANE", "m", units="CPU_AND_ANE") >= "95%"': "'CPU_AND_NE'?",
            'assert model.placement("ANE", "m", function="p") >= 0.9': "no function p with costs",
            'assert model.placement("ANE", "m", observed=energy) >= 0.9': "was not called",
        },
    )


@pytest.mark.skipif("sys.platform == 'darwin'", reason="Core ML plans here")
def test_without_core_ml_it_is_skipped(project: Project) -> None:
    """The reason has the remedy; a path that is no model is an error there too."""
    (project.path / "m.mlpackage").mkdir()
    claim = 'assert model.placement("ANE", "{}.mlpackage") >= "95%"'
    project.claims(HEAD, [claim.format(name) for name in "mn"])
    result = project.run("-rs")
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*n.mlpackage is no Core*", "SKIPPED*Core ML plans nothing on Linux; run this on the Mac*"]
    )


def test_a_run_by_its_counters(planned: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plan or with one, a rail without a counter leaves the run open."""

    def read_j() -> float:
        return 2.0 * PERIOD_S * (time.monotonic() // PERIOD_S)

    meter = Meter((Counter("ANE (IOReport)", "ane", read_j), Counter("CPU", "cpu", read_j)))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    monkeypatch.setattr("pytest_asperf.measure.metered._QUIET_S", 0.0)
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter.LEAST_WINDOW_S", 0.05)
    planned.script("f16", takes_s={"generate": 0.005}, tg_ns_per_token=10**7)
    claims = [
        'assert energy("tg8").ran_on("ANE")',
        'assert model.placement("ANE", "m.mlpackage", observed=energy("tg8")) >= "90%"',
    ]
    planned.claims(HEAD, claims)
    result = planned.run("-v")
    # The counter rises as much on the idle machine, and nothing counts the GPU's energy.
    assert not result.parseoutcomes().get("passed")
    result.stdout.fnmatch_lines_random(
        [
            "*GPU energy: unavailable: nothing here measures it*",
            "*plan: PASS, 93.84 %, wanted at least 90 %*",
            "*fake:F16 ran on ANE * every line of evidence *",
            "*m.mlpackage ran on ANE * every line of evidence *",
        ]
    )
    assert "PASS fake:F16" not in result.stdout.str()
