"""One project under every plugin that runs tests otherwise: its verdicts are the same.

The scripted engine measures: its figures are chosen, its processes and faults are real.
"""

import json
import os
import random
import re
import signal
import time
from typing import Final

import pytest

from pytest_asperf.testing import write_script
from tests.reliability.conftest import Session, Sessions

_IS_CAMPAIGN: Final = "ASPERF_TEST_INPUTS" in os.environ
_N_INTERRUPTS: Final = 50 if _IS_CAMPAIGN else 2
#: A case that is like one of the ordinary tests.
_in_campaign = pytest.mark.skipif(not _IS_CAMPAIGN, reason="a part of tox run -e campaign")
_CONFIG: Final = """
engine = "scripted"
default_model = "sound:F16"
repetitions = 5
chunks = 6
call_timeout_s = 60
[models.sound]
files = { F16 = "sound.json" }
corpus = "corpus.txt"
[models.broken]
files = { F16 = "broken.json" }
corpus = "corpus.txt"
[models.hanging]
files = { F16 = "hanging.json" }
corpus = "corpus.txt"
"""
_TESTS: Final = """
import pytest

@pytest.mark.xdist_group("one")
def test_pass(throughput):
    assert throughput("tg8") >= "1 tok/s"

@pytest.mark.xdist_group("one")
def test_fail(throughput):
    assert throughput("tg8") >= "1000000 tok/s"

@pytest.mark.model("broken:F16")
def test_invalid(throughput):
    assert throughput("tg8") >= "1 tok/s"

def test_pass_too(throughput):
    assert throughput("pp8") >= "1 tok/s"
"""
_HANGS: Final = """
import pytest

@pytest.mark.model("hanging:F16")
@pytest.mark.timeout(1)
def test_hangs(throughput):
    throughput("tg8").estimate
"""
_EXPECTED: Final = {
    "test_pass": "PASSED",
    "test_fail": "FAILED",
    "test_invalid": "INVALID",
    "test_pass_too": "PASSED",
}


@pytest.fixture(scope="module")
def project(sessions: Sessions) -> Sessions:
    """A project with a test of each outcome, and one that hangs."""
    folder = sessions.folder
    write_script(folder / "sound.json")
    write_script(folder / "broken.json", faults={"generate": "crash"})
    write_script(folder / "hanging.json", faults={"generate": "hang"})
    (folder / "corpus.txt").write_text("def area(width):\n    return width\n" * 400)
    (folder / "asperf.toml").write_text(_CONFIG)
    (folder / "test_it.py").write_text(_TESTS)
    (folder / "hangs.py").write_text(_HANGS)
    return sessions


def _require_verdicts(project: Sessions, session: Session, times: int = 1) -> None:
    session.require_clean()
    assert session.status == pytest.ExitCode.TESTS_FAILED
    words = {name: sorted(set(found)) for name, found in _by_function(session).items()}
    assert words == {name: [word] for name, word in _EXPECTED.items()}
    counts = {name: len(found) for name, found in _by_function(session).items()}
    assert set(counts.values()) == {times}, counts
    rows = json.loads((project.folder / "rows.json").read_text("utf-8"))["rows"]
    assert {row["outcome"] for row in rows} - {""} == {"PASS", "FAIL", "INVALID"}
    assert project.left_behind() == []


def _by_function(session: Session) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, words in session.outcomes.items():
        found.setdefault(name.partition("[")[0], []).extend(words)
    return found


@pytest.mark.parametrize(
    "mode",
    [
        "each",
        *(
            pytest.param(mode, marks=_in_campaign)
            for mode in ("load", "loadscope", "loadfile", "loadgroup", "worksteal", "no")
        ),
    ],
)
def test_verdicts_under_xdist(project: Sessions, mode: str) -> None:
    """However tests are shared out, each has its verdict once, or once for each worker."""
    pytest.importorskip("xdist")
    workers = ("--tx", "2*popen") if mode in {"each", "no"} else ("-n2",)
    session = project.run("-pxdist", *workers, f"--dist={mode}", "--asperf-report=json:rows.json")
    _require_verdicts(project, session, 2 if mode == "each" else 1)


def test_verdicts_under_other_plugins(project: Sessions) -> None:
    """Plugins that order, repeat and limit tests change no verdict, all of them together."""
    options: tuple[str, ...] = ()
    for name in ("randomly", "repeat", "timeout"):
        pytest.importorskip(f"pytest_{name}")
        options += (f"-p{name}",)
    options += ("--randomly-seed=7", "--count=2", "--timeout=100")
    _require_verdicts(project, project.run(*options, "--asperf-report=json:rows.json"), 2)


def test_a_rerun_gives_no_new_verdict(project: Sessions) -> None:
    """A rerun requests the same measurement: a FAIL stays one, for any number of runs."""
    pytest.importorskip("pytest_rerunfailures")
    session = project.run("-prerunfailures", "--reruns=2", "--asperf-report=json:rows.json")
    session.require_clean()
    assert session.outcomes["test_fail"] == ["RERUN", "RERUN", "FAILED"]
    assert session.outcomes["test_invalid"][-1] == "INVALID"
    assert session.outcomes["test_pass"] == ["PASSED"]
    assert project.left_behind() == []


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_timeout_of_pytest_timeout_leaves_no_process(project: Sessions, method: str) -> None:
    """It ends the test, or with `thread` the session; the engine's process ends with either."""
    pytest.importorskip("pytest_timeout")
    # The imports of the first measurement are there before the clock of the second one starts.
    tests = ("test_it.py::test_pass", "hangs.py", "test_it.py::test_pass_too")
    session = project.run("-ptimeout", f"--timeout-method={method}", *tests)
    assert "INTERNALERROR" not in session.output
    assert "Timeout" in session.output
    assert session.outcomes["test_pass"] == ["PASSED"]
    if method == "signal":
        # Its own line is broken by the stacks that pytest-timeout prints of other threads.
        assert "FAILED hangs.py::test_hangs - Failed: Timeout" in session.output
        assert session.outcomes["test_pass_too"] == ["PASSED"]
    assert project.left_behind() == []


def test_last_failed_measures_only_what_failed(project: Sessions) -> None:
    """`--lf` runs FAIL and INVALID tests again, with equal verdicts."""
    project.run("--cache-clear")
    session = project.run("--lf")
    session.require_clean()
    assert session.outcomes == {"test_fail": ["FAILED"], "test_invalid": ["INVALID"]}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_controller_of_xdist_writes_its_report(
    project: Sessions, how: signal.Signals
) -> None:
    """Its workers' finished results are in the report, for any end of the controller."""
    pytest.importorskip("xdist")
    (project.folder / "rows.json").unlink(missing_ok=True)
    options = ("-pxdist", "-n1", "--asperf-report=json:rows.json", "-k", "pass or hangs")
    process = project.begin(*options, "test_it.py", "hangs.py")
    assert process.stdout is not None
    seen = ""
    while not re.search(r"PASSED\b.* test_it\.py::test_pass_too", seen):
        line = process.stdout.readline()
        assert line, seen
        seen += line
    process.send_signal(how)
    session = project.end(process)
    session.require_clean()
    assert session.status == pytest.ExitCode.INTERRUPTED, session.output
    rows = json.loads((project.folder / "rows.json").read_text("utf-8"))["rows"]
    assert {row["test"].partition("::")[2] for row in rows} == {"test_pass", "test_pass_too"}
    assert project.left_behind() == []


#: Interrupts the session while it imports one module for the first time.
_INTERRUPTS_IMPORT: Final = """
import importlib.abc, os, signal, sys

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_IMPORT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.usefixtures("own_interpreters")
@pytest.mark.parametrize(
    "module",
    [
        "numpy.linalg",
        *(
            pytest.param(module, marks=_in_campaign)
            for module in (
                "pytest_asperf.measure.runner",
                "numpy._core._multiarray_umath",
                "scipy.special",
                "pytest_asperf.report.lines",
            )
        ),
    ],
)
def test_an_interrupted_import_ends_the_session(project: Sessions, module: str) -> None:
    """Ctrl-C during the first imports is an interrupted session, and nothing else."""
    (project.folder / "interrupts.py").write_text(_INTERRUPTS_IMPORT)
    project.environment["INTERRUPTED_IMPORT"] = module
    session = project.run("-p", "interrupts", "--asperf-report=json:rows.json", "-k", "pass")
    assert "KeyboardInterrupt" in session.output
    assert session.status == pytest.ExitCode.INTERRUPTED, session.output
    for word in ("INTERNALERROR", "RecursionError", "cannot load module"):
        assert word not in session.output


@pytest.mark.usefixtures("own_interpreters")
def test_a_report_that_is_being_written_is_finished(project: Sessions) -> None:
    """Ctrl-C after the last test waits for the report, and the session counts as interrupted."""
    (project.folder / "interrupts.py").write_text(_INTERRUPTS_IMPORT)
    project.environment["INTERRUPTED_IMPORT"] = "pytest_asperf.plugin.report_files"
    session = project.run("-p", "interrupts", "--asperf-report=json:rows.json", "-k", "pass")
    assert session.status == pytest.ExitCode.INTERRUPTED, session.output
    rows = json.loads((project.folder / "rows.json").read_text("utf-8"))["rows"]
    finished = {name for name, words in session.outcomes.items() if words}
    assert {row["test"].partition("::")[2] for row in rows} == finished
    assert finished


def test_a_session_interrupted_at_any_moment(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGINT and SIGTERM lose no finished measurement, and leave no process."""
    chance = random.Random(20261122)
    write_script(project.folder / "sound.json", takes_s={"generate": 0.02})
    options = ("--asperf-report=json:rows.json", "-k", "pass or fail")
    began = time.monotonic()
    project.run(*options)
    whole_s = time.monotonic() - began
    n_finished = 0
    for number in range(_N_INTERRUPTS):
        (project.folder / "rows.json").unlink(missing_ok=True)
        how = chance.choice((signal.SIGINT, signal.SIGTERM))
        process = project.begin(*options)
        # Python's own start is not ours: wait for the session's first line.
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0.0, whole_s))
        process.send_signal(how)
        session = project.end(process)
        told = (number, how, first + session.output)
        assert "INTERNALERROR" not in session.output, told
        finished = {name for name, words in session.outcomes.items() if words}
        n_finished += len(finished)
        if finished:
            rows = json.loads((project.folder / "rows.json").read_text("utf-8"))["rows"]
            assert {row["test"].partition("::")[2] for row in rows} >= finished, told
        assert project.left_behind() == [], told
    if _IS_CAMPAIGN:
        with capsys.disabled():
            print(f"\n{_N_INTERRUPTS} interrupts, {n_finished} tests finished before them")
