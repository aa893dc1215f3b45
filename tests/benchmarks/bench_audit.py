"""What asperf audit costs: time and peak memory on a folder, and on one line of a gigabyte.

python tests/benchmarks/bench_audit.py FOLDER
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_GIGABYTE = 10**9
_BLOCK = 1 << 20
_HEADS = {
    "a gigabyte of one line, of no tool": b"x",
    "a gigabyte of one line in a llama.cpp log": b"build: 9000 (0badcafe) with cc\n",
    "a gigabyte of one line of JSON": b'[{"build_commit": "',
    "a gigabyte of one line of llama-bench JSON lines": (
        b'{"n_prompt": 0, "n_gen": 1, "avg_ns": 1, "avg_ts": 1, "stddev_ts": 0}\n{"a": "'
    ),
    "a gigabyte in one powermetrics sample": b'<?xml version="1.0"?>\n<plist version="1.0">',
}


def _timed(paths: list[Path]) -> str:
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest_asperf.cli", "audit", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - before
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    # The high-water mark of all children so far: the runs are in order of what they may need.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return (
        f"{seconds:6.2f} s  peak {peak * unit / 1e6:6.1f} MB so far  exit {done.returncode}  {last}"
    )


def main() -> None:
    """Time the folder named on the command line, then files that are made for it."""
    folder = Path(sys.argv[1])
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} files, {size / 1e6:.2f} MB: {_timed(paths)}")
    with tempfile.TemporaryDirectory() as made:
        for name, head in _HEADS.items():
            path = Path(made) / "large"
            with path.open("wb") as file:
                file.write(head)
                for _ in range(_GIGABYTE // _BLOCK):
                    file.write(b"x" * _BLOCK)
            print(f"{name}: {_timed([path])}")
            path.unlink()


if __name__ == "__main__":
    main()
