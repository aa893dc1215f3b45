"""Sixty simulated nights through `asperf nightly`, its store and its commands.

Run it as ``python benchmarks/bench_nights.py``: 2 minutes on two quiet cores, prints Markdown and
exits with 1 if the step is not found, or found before it comes.

The engine is the scripted one: each run's time is drawn with a spread of 2 %, each night's cost of
the watched build with 0.5 %. From night 41 on the watched build is another release, 5 % slower.
Only the clock is not the machine's: each night begins a day after the one before.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from unittest.mock import patch

from click.testing import CliRunner, Result

from pytest_asperf.cli import app

NIGHTS: Final = 60
STEP_AT: Final = 41
STEP: Final = 1.05
OF_NIGHTS: Final = 0.005
FIRST_S: Final = 1.7592e9
DAY_S: Final = 86_400
CONFIG: Final = """
engine = "scripted"
default_model = "fake:F16"
store = "history.db"
[models.fake]
files = { F16 = "f16.json" }
"""


def write_build(name: str, version: int, cost: float) -> None:
    """An interpreter whose engine has a version, and is `cost` times as slow."""
    variables = f"ASPERF_SCRIPT_VERSION={version} ASPERF_SCRIPT_COST={cost}"
    path = Path(name)
    path.write_text(f'#!/bin/sh\n{variables} exec {sys.executable} "$@"\n')
    path.chmod(0o755)


def run(*words: str, at: float | None = None) -> Result:
    """Run a command of `asperf`, at a time of its own."""
    clock = patch("pytest_asperf.commands.nightly.time", SimpleNamespace(time=lambda: at))
    lock = patch(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: Path("lock").absolute()
    )
    with lock, clock:
        return CliRunner().invoke(app, words, catch_exceptions=False)


def main() -> int:
    """Make the nightly runs, and print their commands' output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    draw = random.Random(parser.parse_args().seed)  # noqa: S311  # no secret
    os.chdir(tempfile.mkdtemp(prefix="asperf-nights-"))
    os.environ["ASPERF_CACHE"] = str(Path("cache").absolute())
    builds = {"anchor": 1, "first": 2, "second": 3}
    tables = "".join(f'[builds.{name}]\npython = "./{name}"\n' for name in builds)
    Path("asperf.toml").write_text(CONFIG + tables)
    Path("f16.json").write_text('{"tg_ns_per_token": 1000000, "spread": 0.02}')
    write_build("anchor", 1, 1.0)
    codes = []
    print("```")
    for night in range(1, NIGHTS + 1):
        name = "first" if night < STEP_AT else "second"
        for each, cost in (("first", 1.0), ("second", STEP)):
            write_build(each, builds[each], cost * draw.lognormvariate(0, OF_NIGHTS))
        words = ("nightly", "anchor", name, "--workload", "tg32", "--name", "simulated")
        done = run(*words, at=FIRST_S + night * DAY_S)
        codes.append(done.exit_code)
        if night in {1, 2} or done.exit_code:
            print(f"night {night}, exit code {done.exit_code}:\n{done.stdout}", flush=True)
    listed = run("history", "list").stdout
    print("$ asperf history list\n" + listed)
    series = re.search(r"tg32 ratio fake:F16 +(\w+)", listed)
    if series:
        print("$ asperf history show\n" + run("history", "show", series[1], "--last", "24").stdout)
        write_build("first", 2, 1.0)
        write_build("second", 3, STEP)
        confirmed = run("history", "confirm", series[1])
        print(f"$ asperf history confirm, exit code {confirmed.exit_code}\n{confirmed.stdout}")
        codes.append(confirmed.exit_code)
    print("```")
    # The gate of the new build on its first night, the step on its second, and the confirmation.
    wanted = [n in {STEP_AT, STEP_AT + 1} for n in range(1, NIGHTS + 1)] + [True]
    return int([code == 1 for code in codes] != wanted)


if __name__ == "__main__":
    sys.exit(main())
