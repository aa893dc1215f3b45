"""Run the benchmarks: `python benchmarks/run.py [NAME ...]`, all of them without a name.

A benchmark is a file `bench_NAME.py` in this folder: a script that needs no argument, prints one
section of Markdown, and exits with an error if a promise of docs/benchmarks.md is broken.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PREFIX = "bench_"


def main(names: list[str]) -> int:
    """Run the named benchmarks one after the other; return 1 if any of them failed."""
    scripts = {
        path.stem.removeprefix(PREFIX): path
        for path in sorted(Path(__file__).parent.glob(f"{PREFIX}*.py"))
    }
    if unknown := sorted(set(names) - set(scripts)):
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(scripts)}")
        return 2
    failed = []
    for name in names or scripts:
        print(f"\n<!-- {scripts[name].name} -->", flush=True)
        if subprocess.run([sys.executable, scripts[name]], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
