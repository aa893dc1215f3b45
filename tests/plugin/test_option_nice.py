import os
import subprocess

import pytest

from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'


@pytest.mark.parametrize("where", ["option", "file"])
def test_the_header_says_at_which_priority_engines_run(project: Project, where: str) -> None:
    """An option and a key set it; a value that the user gave to pytest itself stays."""
    project.test(MEASURES)
    if where == "file":
        project.config(nice=4)
    result = project.run(*(["--asperf-nice=4"] if where == "option" else []))
    nice = os.getpriority(os.PRIO_PROCESS, 0) or 4
    result.stdout.fnmatch_lines([f"asperf: hardware *; live, engine scripted 1, *, nice {nice}"])


def test_the_usual_priority_is_not_mentioned(project: Project) -> None:
    """With 0 no priority is set, and the header has no line for it."""
    if os.getpriority(os.PRIO_PROCESS, 0):
        pytest.skip("the tests run at a nice value that was named")
    project.test(MEASURES)
    result = project.run("--asperf-nice=0")
    assert ", nice" not in result.stdout.str()
    result.stdout.fnmatch_lines(["asperf: hardware *; live, engine scripted 1, *"])


@pytest.mark.parametrize(
    ("args", "is_said"),
    [
        (("-n2",), True),
        (("-n2", "--asperf-nice=4"), True),
        (("-q", "--asperf-nice=4"), True),
        (("-n2", "-q", "--asperf-nice=4"), True),
        (("-pno:terminal", "--asperf-nice=4"), True),
        (("-q",), False),  # the usual one, and no header
    ],
)
def test_a_priority_that_no_header_has_is_said_once(
    project: Project, command: list[str], args: tuple[str, ...], *, is_said: bool
) -> None:
    """A header of xdist's comes at the end, and `-q` has none: stderr has what was set."""
    project.test(MEASURES)
    words = [*command, "-pxdist", "-pno:cacheprovider", *args]
    done = subprocess.run(words, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.stderr.count("asperf: engines run at nice ") == is_said, done.stderr
