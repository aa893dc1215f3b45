from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8")\n'


def test_auto_measures_nothing_for_other_hardware(project: Project) -> None:
    """Numbers of a chip that is not here are recorded ones; without any the test is skipped."""
    project.test(MEASURES)
    result = project.run("--asperf-hardware=m2ultra", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "asperf: recorded numbers, nothing is measured",
            "SKIPPED [[]1[]] test_it.py:3: nothing recorded for this test on Apple M2 Ultra*",
        ]
    )


def test_live_measures_whatever_is_declared(project: Project) -> None:
    """Who insists gets live numbers, held against the declared chip."""
    project.test(MEASURES)
    result = project.run("--asperf-hardware=m2ultra", "--asperf-source=live")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*m2ultra*declared; this machine is*", "asperf: live, engine*"])


def test_recorded_never_measures(project: Project) -> None:
    """Recorded numbers are never replaced by live ones."""
    project.test(MEASURES)
    project.script("f16", faults={"load": "crash"})
    result = project.run("--asperf-source=recorded")
    result.assert_outcomes(skipped=1)


def test_an_unknown_source_is_a_usage_error(project: Project) -> None:
    """The words are listed."""
    project.test(MEASURES)
    result = project.run("--asperf-source=record")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*did you mean 'recorded'?", "*one of auto, live, recorded*"])
