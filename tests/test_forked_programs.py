"""A forked program equals a started one, for its parent process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="programs are forked on Linux alone"
)

#: Prints its streams, settings and parent.
SHOWS = """
import os, sys

def test_it():
    print(os.getppid(), os.getcwd(), os.environ["ASPERF_OF_TEST"], sys.stdout.encoding, sys.path[0])
    print(sys.stdin.encoding, sys.stderr.encoding, sys.dont_write_bytecode)
    print(open("/proc/self/cmdline", "rb").read().count(b"forked()"), sys.orig_argv[1:])
    print("on stderr", file=sys.stderr, flush=True)
    sys.stdout.flush()
    assert sys.stdin.read() == "given"
    os._exit(7)
"""

#: Variables of Python that a fork obeys by itself.
OBEYED = {"PYTHONIOENCODING": "ascii", "PYTHONDONTWRITEBYTECODE": "1"}


def _shown(folder: Path, command: list[str], environment: dict[str, str]) -> list[list[str]]:
    variables = {"ASPERF_OF_TEST": "of now", **OBEYED}
    (folder / "test_it.py").write_text(SHOWS)
    done = subprocess.run(
        [*command, "-s", "-q"],
        cwd=folder,
        env=environment | variables,
        input="given",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "on stderr\n")
    own, streams, forks = done.stdout.splitlines()[-3:]
    assert streams == "ascii ascii True"
    return [own.split(), forks.split(maxsplit=1)]


@pytest.mark.parametrize("is_forked", [True, False])
def test_it_has_the_streams_and_the_environment_of_now(
    tmp_path: Path,
    command: list[str],
    environment: dict[str, str],
    request: pytest.FixtureRequest,
    *,
    is_forked: bool,
) -> None:
    """It is a child of this process; `own_interpreters` starts it as users do."""
    if not is_forked:
        request.getfixturevalue("own_interpreters")
    own, (forks, words) = _shown(tmp_path, command, environment)
    assert own == [str(os.getpid()), str(tmp_path), "of", "now", "ascii", str(tmp_path)]
    assert (int(forks) > 0, words) == (is_forked, str([*command[1:], "-s", "-q"]))


def test_a_command_ends_with_its_exit_code() -> None:
    """So does its help."""
    command = [sys.executable, "-m", "pytest_asperf.cli", "gate"]
    wrong = subprocess.run([*command, "--nonesuch"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "--nonesuch" in wrong.stderr) == (3, True)
    shown = subprocess.run([*command, "--help"], check=True, capture_output=True, text=True)
    assert "Usage: " in shown.stdout
