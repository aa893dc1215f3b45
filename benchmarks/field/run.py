"""Regressions that users reported, gated forwards and backwards: does the gate agree with them?

Run it as ``python benchmarks/field/run.py [--case NAME]`` on a quiet machine: about two minutes a
case, and the time to compile each release the first time. It prints Markdown and exits with 1 if a
verdict contradicts a report. INCONCLUSIVE and a build that cannot run here contradict none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.hardware.nvidia import read_cards
from pytest_asperf.records.kinds import BrokenRecord
from pytest_asperf.records.report import read
from pytest_asperf.report.result_text import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES: Final = Path(__file__).with_name("cases.toml")
#: The verdict that agrees with a report, forwards and backwards.
AGREEING: Final = {
    "worse": ("FAIL", "PASS"),
    "better": ("PASS", "FAIL"),
    "same": ("PASS", "PASS"),
    "unknown": (None, None),
}
COLUMNS: Final = ("case", "direction", "verdict", "measured", "pairs", "seconds", "agreed")


@dataclass(frozen=True)
class Case:
    """A pair of builds, and its published report.

    `made_by` names a program in `benchmarks/` that writes the file of a model that is not shipped.
    `requirements` has those of builds that are several packages, by name. `card` is true if the
    report is of an NVIDIA card: nothing runs without one.
    """

    name: str
    baseline: str
    candidate: str
    model: str
    workload: str
    reported: Literal["worse", "better", "same", "unknown"]
    source: str
    engine: str = "llama_cpp"
    settings: str = ""
    env: dict[str, str] = field(default_factory=dict)
    made_by: str = ""
    card: bool = False
    requirements: dict[str, list[str]] = field(default_factory=dict)

    def builds(self) -> tuple[str, str]:
        """The builds as the command line names them."""
        behind = f",{self.settings}" if self.settings else ""
        return self.baseline + behind, self.candidate + behind


def gated(case: Case, builds: tuple[str, str], model: str) -> tuple[str, str, int]:
    """Return a gate's verdict, its effect in words, and its pairs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gate.json")
        tables = (
            f"[builds.{name}]\nrequirements = {of}\n" for name, of in case.requirements.items()
        )
        Path(folder, "asperf.toml").write_text("".join(tables), encoding="utf-8")
        words = ["gate", *builds, "--engine", case.engine, "--model", model]
        words += ["--workload", case.workload, "--report", f"json:{file}"]
        done = subprocess.run(
            [Path(sys.executable).with_name("asperf"), *words],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, **case.env},
        )
        rows = read(json.loads(file.read_text()), str(file)).rows if file.exists() else ()
    for row in rows:
        if isinstance(row.record, Verdict):
            pairs = getattr(row.record.compared, "pairs", ())
            return row.record.outcome, in_words(row.record).measured, len(pairs)
        if isinstance(row.record, BrokenRecord):
            return row.record.outcome, row.record.found[:200], 0
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "NOT RUN", lines[-1][:200], 0


def rows(case: Case) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows of a case."""
    base, candidate = case.builds()
    directions = {"forwards": (base, candidate), "backwards": (candidate, base)}
    with tempfile.TemporaryDirectory() as folder:
        model = case.model
        if case.made_by:
            model = str(Path(folder, case.model))
            writer = CASES.parents[1] / case.made_by
            subprocess.run([sys.executable, writer, model], check=True)
        for (direction, builds), agreeing in zip(
            directions.items(), AGREEING[case.reported], strict=True
        ):
            began = time.monotonic()
            verdict, measured, pairs = gated(case, builds, model)
            decided = verdict in {"PASS", "FAIL"}
            agreed = "yes" if verdict == agreeing else "NO"
            if agreeing is None or not decided:
                agreed = "open"
            seconds = f"{time.monotonic() - began:.0f}"
            yield case.name, direction, verdict, measured, str(pairs), seconds, agreed


def main() -> int:
    """Gate the cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="only this one; repeatable")
    chosen = parser.parse_args().case
    cases = [Case(**table) for table in tomllib.loads(CASES.read_text())["case"]]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    contradicted, cards = False, read_cards()
    for case in cases:
        if chosen is not None and case.name not in chosen:
            continue
        if case.card and not cards:
            print(f"| {case.name} | | NOT RUN | needs an NVIDIA card | | | |", flush=True)
        else:
            for row in rows(case):
                print(f"| {' | '.join(row)} |", flush=True)
                contradicted |= row[-1] == "NO"
    return int(contradicted)


if __name__ == "__main__":
    sys.exit(main())
