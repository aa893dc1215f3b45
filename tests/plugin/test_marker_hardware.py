from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('"m1"', "needs m1, this is m2ultra-76"),
        ('"m1", "m4max-40"', "needs m1 or m4max-40, this is m2ultra-76"),
        ("min_memory_gb=1000", "needs 1000 GB of memory, m2ultra-76 has *"),
        ("min_cpu_cores=100", "needs 100 CPU cores, m2ultra-76 has 24"),
        ('"m2ultra-76", min_gpu_cores=77', "needs 77 GPU cores, m2ultra-76 has 76"),
    ],
)
def test_elsewhere_a_test_is_skipped(project: Project, arguments: str, reason: str) -> None:
    """The reason says what is needed and what is there, at the test's own line."""
    project.test(f"@pytest.mark.hardware({arguments})\ndef test_it():\n    assert False\n")
    result = project.run("--asperf-hardware=m2ultra-76", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] test_it.py:3: {reason}"])


@pytest.mark.parametrize(
    "arguments", ['"m2ultra-76"', '"m1", "m2ultra-76"', "min_memory_gb=64, min_gpu_cores=60"]
)
def test_where_it_is_met_a_test_runs(project: Project, arguments: str) -> None:
    """Any of the names will do, and all of the minima have to."""
    project.test(f"@pytest.mark.hardware({arguments})\ndef test_it():\n    pass\n")
    project.run("--asperf-hardware=m2ultra-76").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('"m2ultr"', "no hardware profile is called 'm2ultr'; did you mean 'm2ultra'?"),
        ("", "nothing is asked for"),
        ("min_memory=64", "unknown argument 'min_memory'; did you mean 'min_memory_gb'?"),
        ('min_cpu_cores="8"', "min_cpu_cores: '8' is not usable"),
    ],
)
def test_a_bad_marker_hits_its_own_test_only(project: Project, arguments: str, told: str) -> None:
    """Its test is an error; the next one runs."""
    project.test(
        f"@pytest.mark.hardware({arguments})\ndef test_bad():\n    pass\n"
        "def test_sound():\n    pass\n"
    )
    result = project.run("--asperf-hardware=m2ultra-76")
    result.assert_outcomes(errors=1, passed=1)
    assert told in result.stdout.str()
