"""Every release of llama-cpp-python against the one before it, by the default gate.

``python benchmarks/field/releases.py KEPT [OPTION...]`` gates each pair whose report is not in
the folder KEPT yet, three to seven minutes each and the time to compile, and prints the Markdown
table of all reports. Options of ``asperf gate`` are passed to it; ``--table`` gates nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.records.kinds import BrokenRecord
from pytest_asperf.records.report import read
from pytest_asperf.report.result_text import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.records.report import Report

RELEASES: Final = tuple(f"0.3.{patch}" for patch in range(16, 37))
#: Smaller gains are not worth a line.
STEP: Final = 0.03
COLUMNS: Final = ("builds", "result", "steps")


def gate(baseline: str, candidate: str, file: Path, options: list[str]) -> None:
    """Gate a pair of releases, and keep the report."""
    builds = [f"llama-cpp-python=={release}" for release in (baseline, candidate)]
    asperf = Path(sys.executable).with_name("asperf")
    subprocess.run([asperf, "gate", *builds, "--report", f"json:{file}", *options], check=False)


def steps(report: Report) -> Iterator[str]:
    """Describe each check that is slower, worse or broken, or faster by `STEP` or more."""
    records = [noted.record for noted in report.rows]
    broken = Counter((r.outcome, r.found) for r in records if isinstance(r, BrokenRecord))
    for (outcome, found), n in broken.items():
        yield f"{n} {outcome}: {found}"
    for noted in report.rows:
        record = noted.record
        if isinstance(record, Verdict):
            ratios = [figure.estimate for figure in record.figures if figure.at_most]
            is_timed = getattr(record.compared, "pairs", ())
            is_faster = is_timed and ratios and (ratios[0].high or 1) < 1
            if record.outcome in {"FAIL", "INVALID"} or (is_faster and ratios[0].point <= 1 - STEP):
                said = in_words(record)
                yield f"{record.outcome} `{noted.test}`: {said.brief or said.measured}"


def row(report: Report) -> tuple[str, ...]:
    """The table's row of a gate."""
    gate = report.gate
    assert gate is not None, "a report of asperf gate"
    base, candidate = (
        name.removeprefix("llama-cpp-python==") for name in (gate.baseline, gate.candidate)
    )
    return f"{base} → {candidate}", gate.counts, "<br>".join(steps(report))


def main() -> int:
    """Gate the pairs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kept", type=Path, help="a folder for the reports")
    parser.add_argument("--table", action="store_true", help="gate nothing")
    chosen, options = parser.parse_known_args()
    chosen.kept.mkdir(parents=True, exist_ok=True)
    files = [chosen.kept / f"{old}-{new}.json" for old, new in pairwise(RELEASES)]
    for (old, new), file in zip(pairwise(RELEASES), files, strict=True):
        if not chosen.table and not file.exists():
            gate(old, new, file, options)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for file in files:
        if file.exists():
            print(f"| {' | '.join(row(read(json.loads(file.read_text()), str(file))))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
