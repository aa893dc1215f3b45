"""Why tests were skipped, at the end of the session without `-rs`."""

import pytest

from tests.plugin.conftest import Project

SKIPPED = """
def test_gate(gate):
    assert_no_regression(gate("tg8"))

@pytest.mark.hardware("m2ultra")
@pytest.mark.parametrize("n", range(2))
def test_there(throughput, n):
    throughput("tg8").estimate

@pytest.mark.skip(reason="of the project's own")
def test_own(throughput):
    throughput("tg8").estimate
"""


@pytest.mark.parametrize("args", [(), ("-q",)])
def test_each_kind_says_why_in_one_line(project: Project, args: tuple[str, ...]) -> None:
    """Skipped gates and tests are counted with their reason; others are pytest's own."""
    project.test(SKIPPED)
    result = project.run(*args)
    result.assert_outcomes(skipped=4)
    lines = [line for line in result.stdout.lines if " skipped: " in line]
    assert lines[0] == "asperf: 1 gate skipped: name a build: --asperf-candidate"
    assert lines[1].startswith("asperf: 2 tests skipped: needs m2ultra, this is ")
    assert len(lines) == 2


def test_many_reasons_are_bounded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three reasons with their counts, and how to see the others."""
    monkeypatch.setenv("COLUMNS", "400")
    limits = [10**6, 10**6, 10**7, 10**8, 10**9]
    project.test(f"""
@pytest.mark.parametrize("n", [
    pytest.param(n, marks=pytest.mark.hardware(min_memory_gb=limit))
    for n, limit in enumerate({limits})
])
def test_large(throughput, n):
    pass
""")
    result = project.run()
    (line,) = [line for line in result.stdout.lines if " skipped: " in line]
    assert line.startswith("asperf: 5 tests skipped: needs 1,000,000 GB of memory, ")
    assert " (2); " in line
    assert line.endswith("; and 1 more (pytest -rs)")
