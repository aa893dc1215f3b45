"""pytest's JUnit file: assertions as properties, and verdicts as types of failure."""

from xml.etree import ElementTree as ET

import pytest

from tests.plugin.conftest import Project

_TESTS = """
@pytest.mark.quant("F16")
@pytest.mark.parametrize("least", [10, 9999])
def test_speed(throughput, least):
    assert throughput("tg8") >= f"{least} tok/s"

@pytest.mark.quant("Q4_K_M")
def test_open(throughput):
    assert throughput("tg8") >= "1000 tok/s"

@pytest.mark.quant("Q8_0")
def test_broken(throughput):
    throughput("tg8").estimate

def test_other():
    assert 1 == 2
"""


def test_every_verdict_is_in_it(project: Project) -> None:
    """Programs that read the file distinguish a FAIL from a test that is undecided or broken."""
    project.script("q8", faults={"generate": "crash"})
    project.script("q4", tg_ns_per_token=[1_000_000, 900_000, 1_200_000])
    project.test(_TESTS)
    project.run("--junitxml=j.xml")
    root = ET.parse(project.path / "j.xml")  # noqa: S314  # pytest's own
    cases = {case.get("name"): case for case in root.iter("testcase")}
    kinds = {name: node.get("type") for name in cases for node in cases[name].iter("failure")}
    assert kinds == {
        "test_speed[9999]": "asperf.FAIL",
        "test_open": "asperf.INCONCLUSIVE",
        "test_broken": "asperf.INVALID",
        "test_other": None,
    }
    noted = cases["test_speed[10]"].iter("property")
    told = {node.get("name"): node.get("value") for node in noted}
    claim = "asperf.tg8 fake:F16"
    assert float(told[f"{claim}.value"] or "") == pytest.approx(1000)
    assert told.keys() >= {f"{claim}.low", f"{claim}.high", f"{claim}.sha256"}
    assert (told[f"{claim}.outcome"], told[f"{claim}.limit"]) == ("PASS", "at least 10 tok/s")
    assert not list(cases["test_other"].iter("property"))
