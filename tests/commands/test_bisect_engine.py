"""`asperf bisect` on the real engine: builds that are slower by a share of each step, or wrong."""

import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_asperf.cli import app
from tests.conftest import time_pairs_quickly
from tests.preloaded_server import write_preloaded
from tests.sabotaged_library import write_sabotaged

EQUAL, SLOW = "current,slow_by=0", "current,slow_by=0.6"
GONE = "./gone-1.0-py3-none-any.whl"

# For the target, whose steps are long compared with other work's delay of a slowed one.
pytestmark = pytest.mark.live


@pytest.fixture
def bisect(
    tmp_path: Path, session_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """The command over a list of builds, both ends among them, in an empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: tmp_path / "lock"
    )
    time_pairs_quickly(monkeypatch)
    # Few of the pairs that a size is quoted from; the bounds here are wide.
    monkeypatch.setattr("pytest_asperf.bisect.run._PAIRS_OF_A_SIZE", 6)
    words = ["--set", "seed=3", "--set", "chunks=8", "--tolerance", "20%"]

    def run(*builds: str, workload: str = "tg16", server_of: str | None = None) -> Result:
        ends = (builds[0], builds[-1], "--workload", workload)
        # Larger weights leave a shared cache while the engine lingers.
        how = ["--builds", ",".join(builds), "--model", "asperf-draft:F16"]
        if server_of:
            how = ["--engine", "llama_server", "--model", server_of]
        done = CliRunner().invoke(app, ["bisect", *ends, *how, *words])
        sys.stdout.write(done.output)
        return done

    return run


@pytest.mark.serial
def test_the_culprit_of_one_step(bisect: Callable[..., Result]) -> None:
    """One step, one build that cannot be made: found, and the size is its slowdown."""
    done = bisect(EQUAL, EQUAL, GONE, EQUAL, SLOW)
    assert re.search(r"^INVALID .*gone-1\.0", done.stdout, re.MULTILINE)
    assert done.exit_code == 0, done.output
    assert f"culprit: {SLOW}" in done.stdout
    effect = re.search(r"effect  \+(\d+)\S* %", done.stdout)
    assert effect is not None
    assert 40 < int(effect[1]) < 80
    assert len(re.findall(r"^(?:PASS|FAIL) ", done.stdout, re.MULTILINE)) <= 3 + 2


@pytest.mark.serial
def test_the_map_of_several_steps(bisect: Callable[..., Result]) -> None:
    """Slow, then much slower: no culprit, and the map marks both steps."""
    # Sizes are distinguished by their intervals, in which delays of long runs are small.
    done = bisect(EQUAL, "current,slow_by=0.8", "current,slow_by=10", workload="tg128")
    assert done.exit_code == 2, done.output
    assert "more than one step" in done.stdout
    assert len(re.findall(r" worse *$", done.stdout, re.MULTILINE)) == 2


@pytest.mark.usefixtures("short_text", "short_chunks")
@pytest.mark.parametrize(
    ("workload", "how", "effect"),
    [
        ("kld", "swaps_near_tokens", r"0\.\d+ nats \[.*\] in KLD of asperf-draft:F16, \d+ chunks"),
        ("logits@turns", "stale_cells", r"mean KLD \d\.\d+ nats \(0\.\d+ in the baseline\)"),
    ],
)
def test_the_first_build_of_other_answers(
    bisect: Callable[..., Result], tmp_path: Path, workload: str, how: str, effect: str
) -> None:
    """Ready-made libraries are as fast as before, and from the fourth on their answers change."""
    for name in "abcde":
        (tmp_path / name).mkdir()
    sound = [str(write_sabotaged(tmp_path / name, "keeps_f16")) for name in "abc"]
    wrong = [str(write_sabotaged(tmp_path / name, how)) for name in "de"]
    done = bisect(*sound, *wrong, workload=workload)
    assert done.exit_code == 0, done.output
    assert f"culprit: {wrong[0]}" in done.stdout
    assert f"before  {sound[-1]} passes" in done.stdout
    assert re.search(rf"effect  {effect}", done.stdout)
    assert f"--workload {workload}" in done.stdout


@pytest.mark.serial
def test_the_first_release_with_a_slower_server(
    bisect: Callable[..., Result], tmp_path: Path, program: Callable[[str], Path]
) -> None:
    """Files of releases in one folder, named by number: nothing is compiled."""
    tools = program("llama-server").parent
    for number in range(10_000, 10_006):
        how = "slow_without_top_k" if number >= 10_004 else "none"
        folder = write_preloaded(tmp_path / f"b{number}", tools, how)
        with tarfile.open(tmp_path / f"llama-b{number}-bin-ubuntu-x64.tar.gz", "w:gz") as release:
            release.add(folder, f"llama-b{number}")
    # A client needs too much of the time of the draft's tokens.
    done = bisect("b10000", "b10005", workload="tg64@topk0", server_of="asperf-target:F16")
    assert done.exit_code == 0, done.output
    assert "culprit: " in done.stdout
    assert "llama-b10004-bin-ubuntu-x64.tar.gz" in done.stdout
    assert re.search(r"before .*llama-b10003-bin-ubuntu-x64\.tar\.gz passes", done.stdout)
