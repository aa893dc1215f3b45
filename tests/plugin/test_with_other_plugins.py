import json
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from pytest_asperf.store import open_store
from tests.plugin.conftest import Project

_EVERY_OUTCOME: Final = """
@pytest.mark.quant("F16")
@pytest.mark.parametrize("least", [10, 1000, 9999])
def test_speed(throughput, least):
    assert throughput("tg8") >= f"{least} tok/s"

@pytest.mark.quant("Q8_0")
def test_broken(throughput):
    assert throughput("tg8") >= 1

@pytest.mark.quant(8)
def test_misused(throughput):
    throughput("tg8").estimate

def test_unfilled(gate):
    gate("tg8")

@pytest.mark.quant("Q4_K_M")
def test_noted(throughput):
    throughput("tg8").estimate
"""
#: Passes in its third run; before, once a verdict is a FAIL, and once nothing is measured.
_THIRD_TIME: Final = """
import itertools
_runs = itertools.count(1)

@pytest.mark.quant("F16")
def test_flaky(throughput):
    run = next(_runs)
    assert run != 2
    assert throughput("tg8") >= ("9999 tok/s" if run == 1 else "10 tok/s")

@pytest.mark.quant("F16")
def test_never(throughput):
    assert throughput("tg8") >= "9999 tok/s"

def test_sound():
    pass
"""
TESTS = """
@pytest.mark.model("fake:F16")
def test_ours(throughput):
    throughput("tg8").estimate

def test_theirs(benchmark):
    benchmark(lambda: None)

@pytest.mark.model("fake:F16")
def test_both(throughput, benchmark):
    benchmark(lambda: throughput("tg8"))
"""


@pytest.fixture(autouse=True)
def _others() -> None:
    pytest.importorskip("pytest_benchmark")
    pytest.importorskip("xdist")


@pytest.fixture
def project(project: Project) -> Project:
    """The project, with pytest-benchmark."""
    return project.with_plugin("benchmark")


def test_beside_pytest_benchmark(project: Project) -> None:
    """Both plugins print their tables, in one session and on one test."""
    project.test(TESTS)
    result = project.run("--benchmark-disable-gc")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(["*test_theirs*", "*test_both*", "* tg8 fake:F16 *"])


def test_beside_pytest_benchmark_and_xdist(project: Project) -> None:
    """With all three plugins pytest-benchmark is disabled, and asperf stores one session."""
    project.test(TESTS)
    quiet = "ignore:Benchmarks are automatically disabled"  # a warning before version 5.3
    options = ("-pxdist", "-n2", "--benchmark-json=b.json", "-W", quiet, "--asperf-store=h.db")
    result = project.run(*options)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["* tg8 fake:F16 *"])
    result.stdout.no_fnmatch_line("tg8?fake:F16?*")
    assert not (project.path / "b.json").exists()
    with open_store(str(project.path / "h.db")) as store:
        assert [len(store.sessions()), *(one.key.metric for one in store.series())] == [1, "tg8"]


@pytest.mark.parametrize("more", [(), ("-pxdist", "-n2")])
def test_without_a_terminal(project: Project, more: tuple[str, ...]) -> None:
    """With `-p no:terminal` every outcome is settled, and the report has all of them."""
    project.script("f16", tg_ns_per_token=[1_000_000, 990_000, 1_010_000])
    project.script("q8", faults={"generate": "crash"})
    project.test(_EVERY_OUTCOME)
    done = project.run("-p", "no:terminal", "--asperf-report=json:r.json", *more)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
    claims = json.loads((project.path / "r.json").read_text("utf-8"))["assertions"]
    outcomes = [claim["outcome"] for claim in claims]
    assert sorted(outcomes) == ["FAIL", "INCONCLUSIVE", "INVALID", "PASS"]


@pytest.mark.parametrize("more", [(), ("-pxdist", "-n1")])
def test_a_rerun_is_one_assertion(project: Project, more: tuple[str, ...]) -> None:
    """The last run's verdict replaces those before, in every report, with its number."""
    project = project.with_plugin("rerunfailures")
    project.test(_THIRD_TIME)
    files = [f"--asperf-report={name}:r.{name}" for name in ("json", "md", "csv")]
    result = project.run("--reruns=2", "--junitxml=j.xml", "--asperf-store=h.db", *files, *more)
    result.stdout.fnmatch_lines(["*2 assertions: 1 PASS, 1 FAIL*"])
    text = result.stdout.str()
    assert text.count("≥ 10 ") == 1
    assert text.count("✗  tg8 fake:F16") == 1
    result.stdout.fnmatch_lines(["*run 3 of the test; the runs before do not count*"])
    report = json.loads((project.path / "r.json").read_text("utf-8"))
    found = {claim["test"].rpartition("::")[2]: claim["outcome"] for claim in report["assertions"]}
    assert (len(report["assertions"]), found) == (2, {"test_flaky": "PASS", "test_never": "FAIL"})
    assert all("run 3 of the test" in row["note"] for row in report["rows"] if row["outcome"])
    markdown = (project.path / "r.md").read_text("utf-8")
    assert markdown.count("at least 9999 tok/s") == 1
    root = ET.parse(project.path / "j.xml")  # noqa: S314  # pytest's own
    for case in root.iter("testcase"):
        names = [one.get("name") for one in case.iter("property")]
        assert len(names) == len(set(names))
    with open_store(str(project.path / "h.db")) as store:
        (session,) = store.sessions()
        assert len(store.document(session.id)["assertions"]) == 2


def test_a_rerun_that_measures_nothing_leaves_no_verdict(project: Project) -> None:
    """A test whose last run failed before it measured has no assertion."""
    project = project.with_plugin("rerunfailures")
    project.test(_THIRD_TIME)
    project.run("--reruns=1", "--asperf-report=json:r.json", "-k", "flaky")
    report = json.loads((project.path / "r.json").read_text("utf-8"))
    assert report["rows"] == []
