from collections.abc import Callable

import pytest

from pytest_asperf.hardware.machine import Machine
from tests.plugin.conftest import Project


def test_auto_is_this_machine(project: Project) -> None:
    """By default the hardware is detected, and the header shows it."""
    project.test("def test_it(hardware):\n    assert hardware.declared is None\n")
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *, detected; live, engine scripted 1, *"])


def test_a_chip_can_be_declared(project: Project) -> None:
    """A profile that is not this machine is selected, and the header names both."""
    project.test("def test_it(hardware):\n    assert hardware.declared.id == 'm2ultra-76'\n")
    result = project.run("--asperf-hardware=m2ultra")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *m2ultra*declared; this machine is *"])


@pytest.mark.parametrize("where", ["option", "file"])
def test_an_unknown_chip_is_refused_before_any_test(project: Project, where: str) -> None:
    """A typing error ends the session with the nearest name, at any place."""
    project.test("def test_it(hardware):\n    pass\n")
    if where == "file":
        project.config(hardware="m2ultr")
    result = project.run(*["--asperf-hardware=m2ultr"] * (where == "option"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: no hardware profile is called 'm2ultr'; did you mean 'm2ultra'?*", "*what to do:*"]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_name_with_two_bandwidths_is_refused(project: Project) -> None:
    """M3 Max comes in two chip variants: naming neither would be a guess."""
    project.test("def test_it(hardware):\n    pass\n")
    result = project.run("--asperf-hardware=m3max")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*m3max*m3max-30*m3max-40*"])


ON_A_MAC = """
@pytest.mark.hardware("m2ultra")
@pytest.mark.quant("F16")
def test_chip(throughput, hardware):
    assert hardware.profile.id == "m2ultra-60"
    throughput("tg8").estimate

@pytest.mark.hardware("m2ultra-76", "m4max")
def test_other_bin(throughput):
    throughput("tg8").estimate
"""


@pytest.mark.parametrize("name", ["m2ultra", "auto"])
def test_a_chips_name_means_the_bin_of_this_machine(
    project: Project,
    mac: Callable[[str], Machine],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """On an M2 Ultra with 60 GPU cores its tests are measured, and those of 76 are skipped."""
    monkeypatch.setattr("pytest_asperf.plugin.session.detect", lambda: mac("m2ultra-60"))
    project.test(ON_A_MAC)
    result = project.run(f"--asperf-hardware={name}")
    result.assert_outcomes(passed=1, skipped=1)
    lines = [line for line in result.stdout.lines if " skipped: " in line]
    assert lines == ["asperf: 1 test skipped: needs m2ultra-76 or m4max, this is m2ultra-60"]
    assert "nothing was measured" not in result.stdout.str()


@pytest.mark.parametrize("args", [("-q",), ("-pxdist", "-n1")])
def test_a_session_that_measures_nothing_says_why(project: Project, args: tuple[str, ...]) -> None:
    """If the hardware selected is not this machine, its last line names both and the way out."""
    project.test("def test_it(throughput):\n    pass\ndef test_too(memory):\n    pass\n")
    result = project.run("--asperf-hardware=m2ultra-60", *args)
    result.assert_outcomes(skipped=2)
    (line,) = [line for line in result.stdout.lines if "nothing was measured" in line]
    assert line.startswith("asperf: nothing was measured: m2ultra-60 is not this machine (")
    assert line.endswith("); --asperf-hardware=auto measures here")


@pytest.mark.parametrize("args", [("--asperf-source=recorded",), ("--asperf-source=live",)])
def test_other_reasons_are_not_blamed_on_the_hardware(
    project: Project, args: tuple[str, ...]
) -> None:
    """A session for published figures, or for measuring, is no such session."""
    project.test(
        '@pytest.mark.hardware("m1")\ndef test_it(throughput):\n    pass\n'
        "def test_too(throughput):\n    pytest.skip()\n"
    )
    result = project.run("--asperf-hardware=m2ultra", *args)
    assert "nothing was measured:" not in result.stdout.str()
