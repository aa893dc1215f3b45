"""The cost of loading the plugin in a pytest run, with pytest-benchmark's and an empty module's.

Each figure is one import in a fresh process, at the moment and in the way pytest loads plugins:
pytest's own modules are there, and the module goes through its rewriting of assertions. The modules
alternate in an order drawn anew for every round.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 30
BOUND_MS = 3.0
#: Both plugins that the package registers.
OURS = "pytest_asperf.plugin,pytest_asperf.published"
EMPTY = "asperf_empty"
MODULES = (OURS, "pytest_benchmark.plugin", EMPTY)

CHILD = """
import importlib, os, sys, time
import pytest

class Probe:
    def pytest_load_initial_conftests(self):
        names = sys.argv[1].split(",")
        pytest.register_assert_rewrite(names[0].partition(".")[0])
        began = time.perf_counter_ns()
        for name in names:
            importlib.import_module(name)
        took = time.perf_counter_ns() - began
        print(took, flush=True)
        os._exit(0)

pytest.main(["-s"], plugins=[Probe()])
"""


def import_ms(name: str, folder: Path) -> float:
    """Import modules once in a fresh process; return the milliseconds."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(folder), *filter(None, [environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name],
        cwd=folder,
        env={
            **environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(paths),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout) / 1e6


def measure() -> dict[str, list[float]]:
    """Return the milliseconds of each module's imports, after one unrecorded round."""
    taken: dict[str, list[float]] = {name: [] for name in MODULES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{EMPTY}.py").write_text("")
        for module in MODULES:
            import_ms(module, folder)
        for _ in range(ROUNDS):
            for module in random.sample(MODULES, len(MODULES)):
                taken[module].append(import_ms(module, folder))
    return taken


def main() -> int:
    """Print the table; return 1 if our median is beyond the bound."""
    taken = measure()
    print("### Importing the plugin\n")
    print(f"Python {platform.python_version()}, {ROUNDS} fresh processes each, beyond pytest.\n")
    print("| module | median ms | quartiles ms |")
    print("|---|---|---|")
    for name, figures in taken.items():
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        print(f"| `{name}` | {median:.2f} | {low:.2f} to {high:.2f} |")
    ours = statistics.median(taken[OURS])
    print(f"\nBound: {BOUND_MS:g} ms; reached: {ours:.2f} ms.")
    return int(ours > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
