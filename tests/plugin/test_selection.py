"""A test's markers are parsed once, and again only where one was added since."""

from collections import Counter

import pytest

from pytest_asperf.config.markers import Marks
from pytest_asperf.plugin import parsing
from tests.plugin.conftest import Project

LADDER = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_rung(perplexity, throughput, model, quant):
    assert perplexity.name == quant == model.quant
    assert perplexity.ppl > 1
"""
ADDED = """
@pytest.fixture(autouse=True)
def _added(request):
    request.node.add_marker(pytest.mark.quant("Q8_0"))

def test_it(model):
    assert model.quant == "Q8_0"
"""


def test_markers_are_parsed_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection parses them; set-up, fixtures and the plan of sweeps share the result."""
    parsed: Counter[str] = Counter()
    read = parsing.read_marks

    def counted(node: pytest.Item) -> Marks:
        parsed[node.nodeid] += 1
        return read(node)

    monkeypatch.setattr(parsing, "read_marks", counted)
    project.test(LADDER)
    project.run().assert_outcomes(passed=2)
    assert parsed == {f"test_it.py::test_rung[{level}]": 1 for level in ("Q8_0", "Q4_K_M")}


def test_a_marker_that_a_fixture_adds_counts(project: Project) -> None:
    """The measured model follows the markers that the test has when it runs."""
    project.test(ADDED)
    project.run().assert_outcomes(passed=1)


def test_a_refused_marker_hits_its_own_test_alone(project: Project) -> None:
    """The error of an unusable marker is kept until the test's own set-up, for each such test."""
    project.test(
        '@pytest.mark.quant("Q8")\ndef test_bad(model): ...\n'
        '@pytest.mark.quant("Q8")\ndef test_worse(model): ...\n'
        "def test_good(model): ...\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*test_it.py::test_bad: @pytest.mark.quant: *"])
    result.stdout.fnmatch_lines(["*test_it.py::test_worse: @pytest.mark.quant: *"])
