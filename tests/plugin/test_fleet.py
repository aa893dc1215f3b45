"""Several machines: the same tests on each by xdist's `--dist=each`."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf import __version__
from pytest_asperf.plugin.fleet import judge_probe, machine_name
from pytest_asperf.plugin.machines import machines_of
from pytest_asperf.report.report_data import read_report_file
from pytest_asperf.store import open_store
from tests.plugin.conftest import Project
from tests.report import sample_reports as samples

execnet = pytest.importorskip("execnet")
pytest.importorskip("xdist")

#: Two workers of this host that count as two machines.
TWO = (
    *("-pxdist", "--dist=each", "--tx", "popen//id=mac1//env:ASPERF_MACHINE=one"),
    *("--tx", "popen//id=mac2//env:ASPERF_MACHINE=two"),
)
MEASURES = """
@pytest.mark.model("fake:Q8_0")
def test_rate(throughput):
    assert throughput() >= 1
"""
#: Ends the worker of the second machine, as a lost connection does.
DIES = """
def test_second_machine():
    import os
    if os.environ["ASPERF_MACHINE"] == "two":
        os._exit(1)
"""


def _report(project: Project) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((project.path / "r.json").read_text())
    samples.check_schema(document)
    return document


def test_one_table_one_report_and_a_series_of_each_machine(project: Project) -> None:
    """Table, rows, assertions, pages and stored sessions name their machine."""
    project.test(MEASURES)
    written = [f"--asperf-report={form}:r.{form}" for form in ("json", "md", "csv", "html")]
    result = project.run(*TWO, *written, "--asperf-store=h.db")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "mac1: hardware *",
            "mac2: live, engine scripted 1*",
            "   machine  what *",
            "[.✓]  mac1     tg128 fake:Q8_0 *",
            "[.✓]  mac2     tg128 fake:Q8_0 *",
            "2 assertions: 2 PASS*",
        ]
    )
    document = _report(project)
    machines = document["meta"]["machines"]
    assert list(machines) == ["mac1", "mac2"]
    ids = [facts["machine"]["id"] for facts in machines.values()]
    assert len(set(ids)) == 2
    for table in ("rows", "assertions", "measurements"):
        assert {row["machine"] for row in document[table]} == {"mac1", "mac2"}
    with open_store(str(project.path / "h.db")) as store:
        assert sorted(session.machine for session in store.sessions()) == sorted(ids)
        assert sorted(series.key.machine for series in store.series()) == sorted(ids)
    lines = list(csv.DictReader((project.path / "r.csv").read_text().splitlines()))
    assert [line["report"] for line in lines] == ["mac1", "mac2"]
    for name in ("r.md", "r.html"):
        text = (project.path / name).read_text()
        assert "mac1" in text
        assert "mac2" in text
    assert [one.name for one in read_report_file(project.path / "r.json")] == ["mac1", "mac2"]


def test_a_machine_that_dies_is_a_named_result(project: Project) -> None:
    """The other one measures all its tests; the report names the missing machine and its tests."""
    project.test(DIES + MEASURES)
    result = project.run(*TWO, "--asperf-report=json:r.json", "--asperf-store=h.db")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "[V!]  mac2     machine *ended after 0 of 2 tests: Not properly terminated*",
            "asperf: mac2 ended after 0 of 2 tests: *; what to do: *",
        ]
    )
    by_machine = {row["machine"]: row["outcome"] for row in _report(project)["assertions"]}
    assert by_machine == {"mac1": "PASS", "mac2": "INVALID"}
    with open_store(str(project.path / "h.db")) as store:
        assert len(store.sessions()) == 1


def test_a_slow_machine_is_a_named_result(project: Project) -> None:
    """It is given up after the time limit; all results until then stay."""
    project.config(machine_timeout="3s")
    project.test("""
def test_quick():
    pass

def test_slow():
    import os, time
    time.sleep(600 if os.environ["ASPERF_MACHINE"] == "two" else 0)
""")
    result = project.run(*TWO, "--asperf-report=json:r.json")
    result.assert_outcomes(passed=3, failed=1)
    ended = "ended after 1 of 2 tests: 3 s are over"
    result.stdout.fnmatch_lines([f"asperf: mac2 {ended}; what to do: *: --asperf-machine-timeout*"])
    (row,) = _report(project)["rows"]
    assert (row["machine"], row["outcome"], row["measured"]) == ("mac2", "INVALID", ended)


def test_no_machine_can_be_reached(project: Project) -> None:
    """The session ends at once, with the reason of each."""
    project.test(MEASURES)
    words = [("--tx", f"ssh=-p 1 127.0.0.1//id=mac{n}") for n in (1, 2)]
    result = project.run("-pxdist", "--dist=each", *words[0], *words[1])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*mac1 cannot be reached: *; what to do: *", "mac2 cannot be *"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def _spec(text: str) -> Any:
    spec = execnet.XSpec(text)
    if spec.id is None:
        spec.id = "gw0"
    return spec


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("ssh=mac1", "mac1"),
        ("ssh=-p 2222 me@mac2//python=python3", "mac2"),
        ("ssh=mac3//id=studio", "studio"),
        ("popen", ""),
    ],
)
def test_a_machine_has_the_name_that_the_user_wrote(spec: str, name: str) -> None:
    """An id of one's own comes first, then the host."""
    assert machine_name(_spec(spec)) == name


@pytest.mark.parametrize(
    ("status", "answer", "said", "what"),
    [
        (255, "", "ssh: connect: refused\n\n", "cannot be reached: ssh: connect: refused"),
        (127, "", "not found\n", "cannot run pytest-asperf with python: not found"),
        (1, "", "a\nNo module named x", "cannot run pytest-asperf with python: No module named x"),
        (0, "asperf 0.0.1\n", "", f"has pytest-asperf 0.0.1, and this machine {__version__}"),
    ],
)
def test_what_a_machine_answers(status: int, answer: str, said: str, what: str) -> None:
    """Each reason names the machine, the event, and the remedy."""
    absent = judge_probe(_spec("ssh=mac1"), status, answer, said, is_configured=True)
    assert absent is not None
    assert (absent.machine, absent.what) == ("mac1", what)
    assert absent.remedy


def test_a_machine_that_can_take_a_worker() -> None:
    """The same version will do, and none if the project measures nothing."""
    spec, missing = _spec("ssh=mac1"), "ModuleNotFoundError: No module named 'pytest_asperf'"
    banner = f"Welcome\nasperf {__version__}\n"
    assert judge_probe(spec, 0, banner, "", is_configured=True) is None
    assert judge_probe(spec, 1, "", missing, is_configured=False) is None


def _told(worker: str, name: str, id_: str) -> Any:
    machine = {"id": id_, "hardware": "M2", "os": "macOS", "arch": "arm64"}
    meta = {"host": name, "python": "3", "headline": [], "machine": machine}
    return SimpleNamespace(worker_id=worker, asperf_machine={"name": name, "meta": meta})


def test_two_machines_of_one_name_stay_apart() -> None:
    """Workers of one machine share its name; a fingerprint distinguishes namesakes."""
    reports = [_told("gw0", "mac", "aaaa1"), _told("gw1", "mac", "bbbb1"), _told("gw2", "x", "cc")]
    found = machines_of([*reports, _told("gw3", "other", "cc")], {})
    names = {worker: machine.name for worker, machine in found.items()}
    assert names == {"gw0": "mac (aaaa)", "gw1": "mac (bbbb)", "gw2": "x", "gw3": "x"}


@pytest.mark.live
def test_over_a_real_sshd(project: Project, sshd: Path) -> None:
    """Two gateways measure, a third machine cannot be reached and is a result by its name."""
    project.test(MEASURES)
    common = f"//python={sys.executable}//ssh_config={sshd}//chdir={project.path}"
    common += f"//env:ASPERF_CACHE={project.path}/cache"
    words = [
        *("--tx", f"ssh=mac1{common}//env:ASPERF_MACHINE=one"),
        *("--tx", f"ssh=mac2{common}//env:ASPERF_MACHINE=two"),
        *("--tx", f"ssh=gone{common}"),
    ]
    result = project.run("-pxdist", "--dist=each", *words, "--asperf-report=json:r.json")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "[.✓]  mac1     tg128 fake:Q8_0 *",
            "[.✓]  mac2     tg128 fake:Q8_0 *",
            "[V!]  gone     machine *cannot be reached: *Connection refused*",
            "asperf: gone cannot be reached: *; what to do: try: ssh *",
        ]
    )
    document = _report(project)
    assert list(document["meta"]["machines"]) == ["mac1", "mac2", "gone"]
    assert {row["machine"]: row["outcome"] for row in document["assertions"]} == {
        "mac1": "PASS",
        "mac2": "PASS",
        "gone": "INVALID",
    }
