from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project


def test_auto_is_this_machine(project: Project) -> None:
    """By default the hardware is detected, and the header says so."""
    project.test("def test_it(hardware):\n    assert hardware.declared is None\n")
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *, detected*", "asperf: live, engine scripted*"])


def test_a_chip_can_be_declared(project: Project) -> None:
    """A profile that is not this machine is in force, and the header names both."""
    project.test("def test_it(hardware):\n    assert hardware.declared.id == 'm2ultra-76'\n")
    result = project.run("--asperf-hardware=m2ultra")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *m2ultra*declared; this machine is *"])


@pytest.mark.parametrize("where", ["option", "file"])
def test_an_unknown_chip_is_refused_before_any_test(project: Project, where: str) -> None:
    """A typing error ends the session with the nearest name, wherever it stands."""
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
    """M3 Max comes in two bins: naming neither would be a guess."""
    project.test("def test_it(hardware):\n    pass\n")
    result = project.run("--asperf-hardware=m3max")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*m3max*m3max-30*m3max-40*"])
