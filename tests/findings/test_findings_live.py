import shlex
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_asperf.hardware.in_force import detect
from tests.plugin.conftest import Project

_TOX = Path(__file__).parents[2] / "tox.ini"
_CLAIMS = """
@pytest.mark.quant("Q8_0")
def test_undecided(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta.estimate.point)

@pytest.mark.quant("Q4_K_M")
def test_wrong(perplexity):
    assert_ppl_delta(perplexity, below="1%")
"""


@pytest.fixture(scope="module")
def main_job() -> list[str]:
    """The options with which `tox run -e perf` measures."""
    tox = ConfigParser(interpolation=None)
    tox.read(_TOX)
    line = shlex.split(tox["testenv:perf"]["commands"])
    return [word for word in line if word.startswith("--asperf")]


def test_the_main_job_fails_for_what_is_wrong_alone(project: Project, main_job: list[str]) -> None:
    """An open question has its own letter and word there and fails nothing; a FAIL fails."""
    project.test(_CLAIMS)
    result = project.run(*main_job, "-rx")
    result.assert_outcomes(failed=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "2 assertions: 1 FAIL, 1 INCONCLUSIVE; exit code 1: 1 test failed",
            "XFAIL *INCONCLUSIVE: ΔPPL*",
        ]
    )


def test_weights_in_a_cache_are_no_case_of_the_bandwidth(
    project: Project, main_job: list[str]
) -> None:
    """If a processor's cache may have them, the test is skipped before a model is made."""
    machine = detect()
    if machine.profile or (machine.cache_bytes or 1 << 40) < 16_000_000:
        pytest.skip("memory bounds the weights here")
    (project.path / "asperf.toml").unlink()  # shipped models fill the slots if none is named
    finding = ("--pyargs", "pytest_asperf.findings.test_throughput", "-k", "below_the_b", "-rs")
    result = project.run(*finding, *main_job)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*the last-level cache *memory bounds only weights of 8*"])


@pytest.mark.skipif("sys.platform == 'darwin'", reason="MLX has a GPU here")
@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
def test_the_speed_of_qat_asks_for_time_without_a_gpu(
    project: Project, main_job: list[str]
) -> None:
    """Pairs that the main job's time cannot decide are not begun; the reason names the option."""
    (project.path / "asperf.toml").unlink()  # shipped models fill the slots if none is named
    finding = ("--pyargs", "pytest_asperf.findings.test_qat", "-k", "as_fast", "-rs")
    result = project.run(*finding, *main_job)
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*--asperf-max-seconds=60, not 12*"])
