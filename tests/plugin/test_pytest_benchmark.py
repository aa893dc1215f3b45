import json
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.report.benchmark_rows import comparison_note
from tests.plugin.conftest import Project

pytest.importorskip("pytest_benchmark")

TESTS = """
@pytest.mark.model("fake:F16")
def test_one(throughput):
    throughput("tg8").estimate
    throughput("pp16").estimate

@pytest.mark.model("fake:F16")
def test_the_same_again(throughput):
    throughput("tg8").estimate

@pytest.mark.model("fake:Q8_0", threads=2)
def test_other_model(throughput):
    assert throughput("tg8") >= 1e9

@pytest.mark.quant("Q4_K_M")
def test_no_throughput(perplexity):
    perplexity.ppl.estimate
"""
TWO_SESSIONS = "cannot distinguish a slower build from a slower machine"
NAMES = ["tg8[fake:F16]", "pp16[fake:F16]", "tg8[fake:Q8_0,threads=2]"]


@pytest.fixture
def project(project: Project) -> Project:
    """The project, with pytest-benchmark."""
    return project.with_plugin("benchmark")


@pytest.fixture
def measured(project: Project) -> Project:
    """A project that measures throughput in three ways, and its rows' times."""
    project.script("f16", tg_ns_per_token=[1_000_000, 2_000_000])
    project.test(TESTS)
    return project


def _benchmarks(text: str) -> dict[str, dict[str, Any]]:
    return {measurement["name"]: measurement for measurement in json.loads(text)["benchmarks"]}


def test_a_row_for_each_workload_and_model(measured: Project) -> None:
    """The table has the measurements, once, if one of its options was given."""
    measured.run().stdout.no_fnmatch_line("tg8?fake:F16?*")
    result = measured.run("--benchmark-sort=name")
    result.assert_outcomes(passed=3, failed=1)
    rows = [line.split()[0] for line in result.outlines if line.startswith(("tg8[", "pp16["))]
    assert sorted(rows) == sorted(NAMES)


def test_json_has_the_runs(measured: Project) -> None:
    """Each counted run is a round, in seconds; the rate and run record are printed with it."""
    path = measured.path / "bench.json"
    measured.run(f"--benchmark-json={path}")
    found = _benchmarks(path.read_text())
    assert list(found) == NAMES
    measurement = found["tg8[fake:F16]"]
    # The warm-up and the runs alternate in the script: each run has its second time.
    assert measurement["stats"]["data"] == pytest.approx([0.016] * 5)
    assert (measurement["stats"]["rounds"], measurement["stats"]["iterations"]) == (5, 1)
    assert measurement["stats"]["mean"] == pytest.approx(0.016)
    assert measurement["fullname"] == "asperf::tg8[fake:F16]"
    assert measurement["params"] == {"workload": "tg8", "model": "fake:F16"}
    info = measurement["extra_info"]
    assert info["rate"]["point"] == pytest.approx(500)
    assert info["rate"]["unit"] == "tok/s"
    assert info["ran"]["engine"].startswith("scripted 1")
    assert found["tg8[fake:Q8_0,threads=2]"]["params"]["threads"] == "2"


def test_saved_runs_are_compared(measured: Project) -> None:
    """An autosaved run is found again by name, and a regression check reads both."""
    measured.run("--benchmark-autosave").stdout.no_fnmatch_line(f"*{TWO_SESSIONS}*")
    (saved,) = measured.path.glob(".benchmarks/*/0001_*.json")
    assert list(_benchmarks(saved.read_text())) == NAMES
    result = measured.run("-q", "--benchmark-compare=0001", "--benchmark-compare-fail=mean:5%")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["tg8?fake:F16? (NOW)*"])
    told = [line for line in result.outlines if TWO_SESSIONS in line]
    assert len(told) == 1
    assert "asperf gate" in told[0]


def test_a_comparison_of_others_rows_says_nothing() -> None:
    """The line is about a row of ours that both sessions have."""
    ours, other = (SimpleNamespace(fullname=name) for name in ("asperf::tg8[m]", "test_it.py::t"))

    def note(now: list[Any], *saved: Any) -> str:
        mapping: dict[str, dict[str, Any]] = {"0001.json": {row.fullname: {} for row in saved}}
        return comparison_note(SimpleNamespace(benchmarks=now, compared_mapping=mapping))

    assert TWO_SESSIONS in note([ours, other], ours)
    assert note([ours, other], other) == note([other], ours, other) == note([ours]) == ""
    assert comparison_note(SimpleNamespace(benchmarks=[ours], compared_mapping=None)) == ""


def test_latencies_and_ratios_are_rows(project: Project) -> None:
    """Anything timed comes by itself; two workloads that are compared keep their names."""
    project.test(
        """
@pytest.mark.model("fake:F16")
def test_it(latency, throughput):
    latency("ttft16").estimate
    latency("pp16+tg8").estimate
    assert throughput("pp16") / throughput("tg8") >= 50
"""
    )
    path = project.path / "bench.json"
    project.run(f"--benchmark-json={path}").assert_outcomes(passed=1)
    means = {name: row["stats"]["mean"] for name, row in _benchmarks(path.read_text()).items()}
    assert means == {
        "ttft16[fake:F16]": pytest.approx(0.00016),
        "pp16+tg8[fake:F16]": pytest.approx(0.00716),
        "tg8[fake:F16,tg8]": pytest.approx(0.008),
        "pp16[fake:F16,pp16]": pytest.approx(0.00016),
    }


def test_the_sides_of_a_gate_are_rows(project: Project) -> None:
    """Each build of each timed check is a row: its runs, its settings, and the common verdict."""
    project.config(default_model="fake:F16")
    project.script("f16", tg_ns_per_token=[1_000_000, 1_010_000, 990_000])
    project.test(
        """
def test_gate(gate):
    assert_no_regression(gate("tg256", "ppl"))
"""
    )
    path = project.path / "bench.json"
    project.run("--asperf-candidate=slow_by=0.5", f"--benchmark-json={path}")
    found = _benchmarks(path.read_text())
    base = "tg256[fake:F16 in current,baseline]"
    candidate = "tg256[fake:F16 in current,slow_by=0.5,candidate,slow_by=0.5]"
    assert list(found) == [base, candidate]
    assert found[base]["stats"]["mean"] == pytest.approx(0.256, rel=0.02)
    assert found[candidate]["stats"]["mean"] == pytest.approx(0.384, rel=0.02)
    assert found[candidate]["params"]["variant"] == "candidate"
    info = found[candidate]["extra_info"]
    assert info["outcome"] == "FAIL"
    assert info["assertion"].endswith("within +5 %")
    assert info["ran"]["candidate settings"].endswith("slow_by=0.5")


@pytest.mark.parametrize(
    "args", [("--benchmark-disable",), ("--benchmark-skip",), ("-p", "no:benchmark")]
)
def test_absent_where_benchmarks_are_off(measured: Project, args: tuple[str, ...]) -> None:
    """Without benchmarks there is no table of theirs, and ours is whole."""
    result = measured.run(*args)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.no_fnmatch_line("tg8?fake:F16?*")
    result.stdout.fnmatch_lines(["* tg8 fake:F16 *"])
