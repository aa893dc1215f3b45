"""Writers of one store that are killed at random; `benchmarks/bench_store.py` does it longer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_store.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not part of the sdist")
def test_killed_writers_lose_nothing() -> None:
    """A writer's confirmed report is there, and nothing is there in part."""
    words = ("--kills", "5", "--series", "0", "--writers", "3")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False
    )
    row = re.search(r"\| 300 \| 3 \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", done.stdout)
    assert row, done.stdout + done.stderr
    killed, told, stored, lost, partial = map(int, row.groups())
    assert (lost, partial, done.returncode) == (0, 0, 0)
    assert killed == 8
    assert 5 <= told <= stored
