from typing import Any

import pytest

from pytest_asperf.hardware.in_force import detect
from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'


def test_auto_measures_nothing_for_other_hardware(project: Project) -> None:
    """Figures of another chip are published ones; without any the test is skipped."""
    project.test(MEASURES)
    result = project.run("--asperf-hardware=m2ultra", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "asperf: hardware *; published figures, nothing is measured",
            "SKIPPED [[]1[]] test_it.py:3: no published figure for this test on Apple M2 Ultra*",
        ]
    )


def test_live_measures_whatever_is_declared(project: Project) -> None:
    """With `live` the numbers are measured, and compared with the declared chip."""
    project.test(MEASURES)
    result = project.run("--asperf-hardware=m2ultra", "--asperf-source=live")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*m2ultra*declared; this machine is*; live, engine*"])


UTILISATION = """
@pytest.mark.quant("F16")
def test_utilisation(throughput):
    assert throughput("tg8").bandwidth_utilization <= "100%"

@pytest.mark.quant("F16")
@pytest.mark.hardware("m2ultra")
def test_there(throughput):
    assert throughput("tg8") >= 1
"""


def _on(project: Project, **facts: Any) -> None:
    """Have the machine detected as one of these facts."""
    machine = f"Machine(**{ {'os': 'macOS', 'arch': 'arm64', 'cpu_brand': None, **facts}!r})"
    conftest = project.path / "conftest.py"
    conftest.write_text(
        f"{conftest.read_text()}import pytest_asperf.plugin.session\n"
        "from pytest_asperf.hardware.machine import Machine\n"
        f"pytest_asperf.plugin.session.detect = lambda: {machine}\n"
    )
    project.script("f16", bytes_per_token=5 * 10**8)
    project.test(UTILISATION)


def test_a_contradicted_profile_decides_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assertion that needs it is INVALID, and tests of that hardware are skipped."""
    monkeypatch.setattr("pytest_asperf.plugin.session.detect", detect)  # put back after the test
    _on(project, os="Linux", arch="x86_64", cpu_brand="Intel(R) Xeon(R)")
    result = project.run("--asperf-hardware=m2ultra", "--asperf-source=live")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "! *800 GB/s (advertised, declared) *  declared m2ultra-76, and this machine *",
            "asperf: 1 test skipped: needs m2ultra, this is Intel(R) Xeon(R)",
        ]
    )


@pytest.mark.parametrize(
    ("brand", "kind"), [(None, "advertised, declared"), ("Apple M2 Ultra", "advertised")]
)
def test_a_machine_that_is_not_fully_known_can_be_declared(
    project: Project, monkeypatch: pytest.MonkeyPatch, brand: str | None, kind: str
) -> None:
    """An unknown chip is the declared one, which verdicts name; variants may share a bandwidth."""
    monkeypatch.setattr("pytest_asperf.plugin.session.detect", detect)  # put back after the test
    _on(project, cpu_brand=brand)
    result = project.run("--asperf-hardware=m2ultra", "--asperf-source=live")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"✓ *utilization of 800 GB/s ({kind}) by *"])


def test_recorded_never_measures(project: Project) -> None:
    """Published numbers are never replaced by live ones."""
    project.test(MEASURES)
    project.script("f16", faults={"load": "crash"})
    result = project.run("--asperf-source=recorded")
    result.assert_outcomes(skipped=1)
