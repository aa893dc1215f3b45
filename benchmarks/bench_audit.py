"""The cost of asperf audit: on a folder of files, given or saved, and on a gigabyte.

python benchmarks/bench_audit.py [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_RECORDED = Path(__file__).parents[1] / "fixtures" / "audit"
_GIGABYTE = 10**9
_BLOCK = 1 << 20
_BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024
_HEADS = {
    "1 GB of one line, of no tool": b"x",
    "1 GB of one line in a llama.cpp log": b"build: 9000 (0badcafe) with cc\n",
    "1 GB of one line of JSON": b'[{"build_commit": "',
    "1 GB of one line of llama-bench's JSON lines": (
        b'{"n_prompt": 0, "n_gen": 1, "avg_ns": 1, "avg_ts": 1, "stddev_ts": 0}\n{"a": "'
    ),
    "1 GB of one powermetrics sample": b'<?xml version="1.0"?>\n<plist version="1.0">',
}


def _row(name: str, paths: list[Path]) -> str:
    """Return a row with time, peak memory and exit code of one run of the command."""
    command = [sys.executable, "-m", "pytest_asperf.cli", "audit", *map(str, paths)]
    before = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - before
    code = child.returncode = os.waitstatus_to_exitcode(status)
    peak_mb = usage.ru_maxrss * _BYTES_PER_UNIT / 1e6
    return f"| {name} | {seconds:.1f} s | {usage.ru_utime:.1f} s | {peak_mb:.0f} MB | {code} |"


def main(folder: Path) -> None:
    """Time the files of a folder together, then large ones that are made for it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    print("## asperf audit\n\n| what | time | on the CPU | peak memory | exit |")
    print("| --- | --- | --- | --- | --- |")
    print(_row("no file that exists", [folder / "no such file"]))
    print(_row(f"{len(paths)} files of {folder.name}/, {megabytes:.1f} MB", paths))
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "large"
        for name, head in _HEADS.items():
            with path.open("wb") as file:
                file.write(head)
                for _ in range(_GIGABYTE // _BLOCK):
                    file.write(b"x" * _BLOCK)
            print(_row(name, [path]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _RECORDED)
