"""Two measurements at once would disturb each other: on one machine they run one by one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest

from pytest_asperf.hardware.machine_lock import MachineQueue
from tests.plugin.conftest import Project

MEASURES = """
@pytest.mark.model("fake:F16")
@pytest.mark.parametrize("n", range(4))
def test_it(throughput, n):
    throughput(f"tg{n + 8}").estimate
"""
#: The first process keeps the machine until the other waits for it, or for five minutes.
MEET = """
import time
from contextlib import contextmanager
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.plugin.session import TerminalNotify

turn, wait = MachineQueue.turn, TerminalNotify.wait
waited = Path(__file__).with_name("waited")

@contextmanager
def kept(self):
    with turn(self):
        until = time.monotonic() + 300
        while not waited.exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield

def waits(self, reason):
    wait(self, reason)
    waited.touch()

MachineQueue.turn, TerminalNotify.wait = kept, waits
"""


def _meeting(project: Project) -> Path:
    with (project.path / "conftest.py").open("a") as conftest:
        conftest.write(MEET)
    log = project.path / "log"
    # A load that is too dear to repeat: the runs of a measurement are one warm-up and five.
    project.script("f16", log=str(log), takes_s={"generate": 0.05}, load_ns=10**10)
    project.test(MEASURES)
    return log


def _started(
    words: Sequence[object], project: Project, environment: dict[str, str]
) -> subprocess.Popen[str]:
    """Start a process in a project's folder."""
    return subprocess.Popen(
        [*map(str, words)], cwd=project.path, env=environment, stdout=subprocess.PIPE, text=True
    )


def _turns(log: Path) -> list[tuple[str, int]]:
    """Return which process ran and how often in a row, in the order of the clock."""
    lines = [line.split() for line in log.read_text().splitlines()]
    by_time = sorted((int(ns), pid) for operation, pid, ns in lines if operation == "generate")
    return [(pid, len(list(runs))) for pid, runs in groupby(pid for _, pid in by_time)]


def _assert_whole_measurements(log: Path, measurements: int, runs_each: int) -> None:
    """Assert that no process ran anything within another's measurement."""
    lengths = [length for _, length in _turns(log)]
    assert sum(lengths) == measurements * runs_each
    assert all(length % runs_each == 0 for length in lengths)


def test_two_sessions_never_measure_at_once(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """Their runs never interleave, and a waiting process prints the reason."""
    log = _meeting(project)
    words = [*command, "-p", "no:cacheprovider"]
    sessions = [_started(words, project, environment) for _ in range(2)]
    outputs = [session.communicate()[0] for session in sessions]
    assert [session.returncode for session in sessions] == [0, 0], outputs
    assert len({pid for pid, _ in _turns(log)}) == 2
    _assert_whole_measurements(log, measurements=8, runs_each=6)
    assert any("asperf: waiting: another measurement is running" in text for text in outputs)
    assert any("waited until the machine was free: test_it.py::test_it[" in t for t in outputs)


def test_xdist_workers_take_turns(project: Project) -> None:
    """`-n 2` works: no interleaving, rows of both workers in one table, the header printed once."""
    log = _meeting(project)
    result = project.run("-pxdist", "-n2")
    result.assert_outcomes(passed=4)
    _assert_whole_measurements(log, measurements=4, runs_each=6)
    text = result.stdout.str()
    assert text.count("= asperf =") == 1
    assert text.count("measured [90 %]") == 1
    assert text.count("live, engine scripted") == 1
    for n in range(8, 12):
        assert text.count(f"tg{n} ") == 1
    result.stdout.fnmatch_lines(["waited until the machine was free: test_it.py::test_it*"])


def test_a_wait_that_no_terminal_shows_is_on_stderr(
    project: Project, command: list[str], environment: dict[str, str], session_cache: Path
) -> None:
    """Each worker prints once that it waits for another session, and not for its siblings."""
    log = _meeting(project)
    words = [
        *command,
        *("-pxdist", "-n2", "-pno:terminal", "-pno:cacheprovider", "--asperf-nice=0"),
    ]
    start = partial(subprocess.Popen, words, cwd=project.path, env=environment, text=True)
    with start(stderr=subprocess.PIPE) as alone:
        _, told = alone.communicate()
    assert (alone.returncode, told) == (0, "")
    log.unlink()
    with start(stderr=subprocess.PIPE) as session:
        assert session.stderr is not None
        with MachineQueue(session_cache / "lock", print).turn():
            first = session.stderr.readline()
        told = first + session.communicate()[1]
    assert session.returncode == 0, told
    said = "asperf: waiting: another measurement is running on this machine: pid"
    assert 1 <= told.count(f"{said} {os.getpid()} ") == len(told.splitlines()) <= 2, told


EVERY_OUTCOME = """
@pytest.mark.quant("Q8_0")
def test_open(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)

@pytest.mark.model("fake:F16")
def test_broken(throughput):
    throughput().estimate

@pytest.mark.quant("Q8_0")
@pytest.mark.parametrize("least", [10, 9999])
def test_speed(throughput, least):
    assert throughput("tg8") >= f"{least} tok/s"

@pytest.mark.quant("Q8_0")
def test_forgotten(throughput):
    throughput("tg8") >= 40

def test_skipped(gate):
    assert_no_regression(gate("tg8"))
"""


def test_xdist_carries_all_outcomes(project: Project) -> None:
    """Letters, notes, lists, reports and JUnit's file are those of a run without xdist."""
    project.script("f16", faults={"generate": "crash"})
    project.test(EVERY_OUTCOME)

    def found(*args: str) -> list[Any]:
        files = ("--junitxml=j.xml", "--asperf-report=json:report.json")
        result = project.run(*args, *files)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines_random(
            [
                "*_ INCONCLUSIVE test_it.py::test_open _*",
                "[?]  ΔPPL *",
                "!  test_it.py::test_broken  scripted generate fake:F16: *SIGSEGV*",
                "*compared and did not assert: tg8 fake:Q8_0 at least 40 tok/s",
                "asperf: 1 gate skipped: name a build: --asperf-candidate",
                "5 assertions: 2 PASS, 1 FAIL, 1 INCONCLUSIVE, 1 INVALID*",
                "asperf: wrote *report.json",
            ]
        )
        root = ET.parse(project.path / "j.xml")  # noqa: S314  # pytest's own
        kinds = {
            (case.get("name"), node.tag, node.get("type"))
            for case in root.iter("testcase")
            for node in case
        }
        properties = {node.get("name") for node in root.iter("property")}
        rows = json.loads((project.path / "report.json").read_text("utf-8"))["rows"]
        outcomes = sorted((row["test"], row["outcome"]) for row in rows)
        return [result.parseoutcomes(), kinds, properties, outcomes]

    assert found("-pxdist", "-n1") == found()


def test_xdist_workers_refuse_a_bad_file_in_each_test(project: Project) -> None:
    """An invalid session would look like crashed workers; each test reports the fault."""
    project.test(MEASURES)
    config = project.path / "asperf.toml"
    config.write_text(f"repetition = 3\n{config.read_text()}")
    result = project.run("-pxdist", "-n1")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*did you mean *", "  why it matters: *", "  what to do: *"])
    assert "Traceback" not in result.stdout.str()


#: Locks a project until its file `release` is there, and prints when it has the lock.
HOLDER = """
import sys, time
from pathlib import Path
from pytest_asperf.hardware.machine_lock import MachineQueue
with MachineQueue(Path(sys.argv[1]), print).turn():
    print("held", flush=True)
    while not Path("release").exists():
        time.sleep(0.05)
"""
#: The first process goes as soon as a process waits for it.
RELEASES = """
from pytest_asperf.plugin.session import TerminalNotify
wait = TerminalNotify.wait

def released(self, reason):
    wait(self, reason)
    Path("release").touch()

TerminalNotify.wait = released
"""


@pytest.fixture
def holder(
    project: Project, session_cache: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Another process with the project's lock."""
    words = (sys.executable, "-c", HOLDER, session_cache / "lock")
    process = _started(words, project, environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_waiting_is_told(
    project: Project,
    holder: subprocess.Popen[str],
    command: list[str],
    environment: dict[str, str],
) -> None:
    """The process's pid and command are printed, for any command line."""
    project.test(MEASURES)
    with (project.path / "conftest.py").open("a") as conftest:
        conftest.write(RELEASES)
    words = [*command, "-p", "no:cacheprovider", "--asperf-repetitions=2"]
    session = _started(words, project, environment)
    output, _ = session.communicate()
    assert session.returncode == 0, output
    user = psutil.Process().username()
    assert (
        "asperf: waiting: another measurement is running on this machine: "
        f"pid {holder.pid} of {user} (" in output
    )
    assert "asperf: waiting: the machine is free after " in output


@pytest.mark.parametrize("where", ["option", "file"])
def test_the_wait_has_an_end(project: Project, holder: subprocess.Popen[str], where: str) -> None:
    """No test passes, and each names the process and the option to wait longer."""
    project.test(MEASURES)
    if where == "file":
        project.config(wait="0s")
    result = project.run(*(["--asperf-wait=0"] if where == "option" else []))
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [f"gave up after waiting 0 s for another measurement *: pid {holder.pid} of * (*), since *"]
    )
    result.stdout.fnmatch_lines(["*or wait longer: --asperf-wait=30min"])
