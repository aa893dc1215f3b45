from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_asperf.store.opening import open_store

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

TESTS = """
@pytest.mark.model("fake:F16")
def test_ours(throughput):
    throughput("tg8")

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
    """All three together: pytest-benchmark stands back, ours takes turns and stores one session."""
    project.test(TESTS)
    result = project.run("-n", "2", "--benchmark-disable", "--asperf-store=h.db")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["* tg8 fake:F16 *"])
    with open_store(str(project.path / "h.db")) as store:
        assert [len(store.sessions()), *(one.key.metric for one in store.series())] == [1, "tg8"]
