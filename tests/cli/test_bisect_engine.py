"""`asperf bisect` on the real engine: builds that are slower by a share of each step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from pytest_asperf.cli import app

if TYPE_CHECKING:
    from pathlib import Path

EQUAL, SLOW, SLOWER = "current,slow_by=0", "current,slow_by=0.4", "current,slow_by=1.5"
GONE = "./gone-1.0-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path: Path, draft_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with a cache of its own; the model is made already."""
    assert draft_gguf.is_file()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    return tmp_path


def bisect(model: Path, *builds: str) -> Result:
    """Bisect a list of builds, both ends among them."""
    words = ["--workload", "tg16", "--model", str(model), "--max-pairs", "14", "--seed", "3"]
    ends = (builds[0], builds[-1])
    return CliRunner().invoke(app, ["bisect", *ends, "--builds", ",".join(builds), *words])


@pytest.mark.usefixtures("folder")
def test_the_culprit_of_one_step(draft_gguf: Path) -> None:
    """One step, one build that cannot be made: found, and the size is what it is slowed by."""
    done = bisect(draft_gguf, EQUAL, EQUAL, GONE, EQUAL, SLOW, SLOW, SLOW)
    assert done.exit_code == 0, done.output
    assert f"culprit: {SLOW}" in done.stdout
    effect = re.search(r"effect  \+(\d+)\S* %", done.stdout)
    assert effect is not None
    assert 25 < int(effect[1]) < 55
    assert len(re.findall(r"^(?:PASS|FAIL) ", done.stdout, re.MULTILINE)) <= 3 + 2


@pytest.mark.usefixtures("folder")
def test_the_map_of_several_steps(draft_gguf: Path) -> None:
    """Slow, then much slower: no culprit, and the map marks both steps."""
    done = bisect(draft_gguf, EQUAL, EQUAL, SLOW, SLOW, SLOW, SLOWER, SLOWER)
    assert done.exit_code == 1, done.output
    assert "more than one step" in done.stdout
    assert done.stdout.count(" worse\n") == 2
