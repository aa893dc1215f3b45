"""`asperf bisect` on the real engine: builds that are slower by a share of each step."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from pytest_asperf.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EQUAL, SLOW, SLOWER = "current,slow_by=0", "current,slow_by=0.6", "current,slow_by=2"
GONE = "./gone-1.0-py3-none-any.whl"

# Of the target, whose steps are long beside what other work on the machine adds to a slowed one.
pytestmark = [pytest.mark.live, pytest.mark.serial]


@pytest.fixture
def bisect(
    tmp_path: Path, session_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """The command over a list of builds, both ends among them, in an empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    # Half of the pairs that a size is quoted from; the bounds here are wide.
    monkeypatch.setattr("pytest_asperf.bisect.run._PAIRS_OF_A_SIZE", 10)
    words = [
        "--workload",
        "tg16",
        "--model",
        "asperf-draft:F16",  # larger weights leave a shared cache while the engine lingers
        "--set",
        "seed=3",
        "--tolerance",
        "20%",
    ]

    def run(*builds: str) -> Result:
        ends = (builds[0], builds[-1])
        done = CliRunner().invoke(app, ["bisect", *ends, "--builds", ",".join(builds), *words])
        sys.stdout.write(done.output)
        return done

    return run


def test_the_culprit_of_one_step(bisect: Callable[..., Result]) -> None:
    """One step, one build that cannot be made: found, and the size is what it is slowed by."""
    done = bisect(EQUAL, EQUAL, GONE, EQUAL, SLOW)
    assert re.search(r"^INVALID .*gone-1\.0", done.stdout, re.MULTILINE)
    assert done.exit_code == 0, done.output
    assert f"culprit: {SLOW}" in done.stdout
    effect = re.search(r"effect  \+(\d+)\S* %", done.stdout)
    assert effect is not None
    assert 40 < int(effect[1]) < 80
    assert len(re.findall(r"^(?:PASS|FAIL) ", done.stdout, re.MULTILINE)) <= 3 + 2


def test_the_map_of_several_steps(bisect: Callable[..., Result]) -> None:
    """Slow, then much slower: no culprit, and the map marks both steps."""
    done = bisect(EQUAL, SLOW, SLOW, SLOWER)
    assert done.exit_code == 2, done.output
    assert "more than one step" in done.stdout
    assert len(re.findall(r" worse *$", done.stdout, re.MULTILINE)) == 2
