"""A build that gets slower with its answers fails, in a gate and by itself."""

import pytest

from pytest_asperf.config.workload import Workload
from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

#: One thread, so that no thread waits for another that the system has put aside.
HEAD = 'pytestmark = pytest.mark.model("asperf-draft", threads=1)\n'
GATE = """
def test_gate(gate):
    assert_no_regression(gate({names}), tolerance="40%")
"""
ITSELF = """
def test_rate(throughput):
    assert throughput({name!r}) / throughput("tg32") >= 0.75

def test_first_token(latency):
    assert latency("ttft64@after1") / latency("ttft64") <= 1.4
"""
CASES = [("slow_after_a_long_prompt", "tg32@after1"), ("slow_after_requests", "tg32@after14")]

pytestmark = pytest.mark.serial


@pytest.fixture(autouse=True)
def _shorter_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long prompt is as long as the fault needs."""
    monkeypatch.setattr("pytest_asperf.config.workload._LONG", Workload("ttft", 512))


@pytest.mark.parametrize(("how", "name"), CASES)
def test_a_gate_fails(live: Project, how: str, name: str) -> None:
    """The same work in a new process passes."""
    live.test(HEAD + GATE.format(names=f"'tg32', {name!r}"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate tg32 *", f"✗ *gate {name} *"])


@pytest.mark.parametrize(("how", "name"), CASES)
def test_a_build_by_itself_fails(live: Project, how: str, name: str) -> None:
    """The ratio of the rates after and before is judged in pairs of processes."""
    live.test(HEAD + ITSELF.format(name=name))
    python = write_sabotaged(live.path, how)
    result = live.run(f"--asperf-python={python}", "-v", "-k", "rate")
    result.stdout.fnmatch_lines([f"✗ *{name} / tg32*"])


def test_a_sound_build_passes(live: Project) -> None:
    """It is as fast after a long prompt and short requests: 13 by itself, and one in a gate."""
    gate = GATE.format(names="'tg32@after2', 'pp32@after2'")
    live.test(HEAD + ITSELF.format(name="tg32@after14") + gate)
    result = live.run("--asperf-candidate=current", "-v")
    result.assert_outcomes(passed=3)
