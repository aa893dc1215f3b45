"""Writes the printed samples of the pages: `python docs/samples.py [NAME...]` runs their commands.

A sample is a block between `<!-- sample: NAME -->` and `<!-- end -->`. Its command runs in an empty
folder, at 80 columns, and a part of its output is kept, with the machine and the date below it. An
unexpected exit code, a part that is not there and a sample without a page are errors.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_asperf.hardware.in_force import detect

ROOT: Final = Path(__file__).parents[1]
#: The pages that show samples.
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
REGION: Final = re.compile(
    r"(<!-- sample: ([a-z-]+) -->\n```\n)((?:(?!```).)*)(```\n)((?:(?!<!--).)*)(<!-- end -->)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A command, and the part of its output that a page shows.

    Attributes:
        command: as a reader would type it.
        exit_code: of the command; with another one its output is no sample.
        first: matches the first line of the part.
        last: matches its last line; without it, the part goes on to the end.
        without: left out, from a line that matches the first to one that matches the second.
        is_dated: whether the command is written above the output, and machine and date below.
    """

    command: str
    exit_code: int
    first: str = ""
    last: str = ""
    without: tuple[str, str] | None = None
    is_dated: bool = True


SAMPLES: Final = {
    "readme": Sample(
        "pytest test_mine.py --asperf-chunks=16", 1, first="✓", last="✗", is_dated=False
    ),
    "gate-readme": Sample("asperf gate current current", 0, last="tg128 "),
    "session": Sample(
        "pytest test_mine.py --asperf-chunks=16", 1, first="_ test_", last="assertions"
    ),
    "gate": Sample(
        "asperf gate current current,type_k=q4_0,type_v=q4_0 --workload ppl,kld,memory",
        1,
        without=("^ppl asperf", "^what ran"),
    ),
    "bisect": Sample(
        "asperf bisect current current,type_k=q4_0,type_v=q4_0 --workload kld "
        "--builds current,n_ubatch=64,current,flash_attn=on,current,type_k=q8_0,type_v=q8_0,"
        "current,type_k=q4_0,type_v=q4_0",
        0,
        first="culprit",
    ),
}


def first_test() -> str:
    """The README's test, which `test_mine.py` has."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def printed(sample: Sample) -> str:
    """The part of a sample's output that its page shows, after a run of its command.

    Raises:
        ValueError: the command ended with another exit code, or its output lacks the part.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_mine.py").write_text(first_test(), encoding="utf-8")
        done = subprocess.run(
            shlex.split(sample.command),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
        )
    if done.returncode != sample.exit_code:
        raise ValueError(
            f"{sample.command}: exit code {done.returncode} instead of {sample.exit_code}\n"
            f"{done.stdout}{done.stderr}"
        )
    return part(sample, done.stdout)


def part(sample: Sample, output: str) -> str:
    """The lines from the first to the last one that a sample names.

    Raises:
        ValueError: the output has no such lines, or they are empty.
    """
    lines = [line.rstrip() for line in output.splitlines()]

    def find(pattern: str, begin: int = 0) -> int:
        for number in range(begin, len(lines)):
            if re.search(pattern, lines[number]):
                return number
        raise ValueError(f"{sample.command}: no line matches {pattern!r}\n{output}")

    begin = find(sample.first or r"\S")
    kept = list(range(begin, find(sample.last, begin) + 1 if sample.last else len(lines)))
    if sample.without:
        cut = find(sample.without[0], begin)
        go_on = find(sample.without[1], cut)
        kept = [number for number in kept if not cut <= number < go_on]
    return "\n".join(lines[number] for number in kept).strip("\n") + "\n"


def write(name: str, sample: Sample, pages: Sequence[Path] = PAGES) -> None:
    """Run a sample, and write its output into its page.

    Raises:
        ValueError: the command did not print the sample, or no page shows it.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    shown = [page for page in pages if any(x[2] == name for x in REGION.finditer(texts[page]))]
    if not shown:
        raise ValueError(f"no page shows the sample {name}")
    block, below = printed(sample), ""
    if sample.is_dated:
        block = f"$ {sample.command}\n{block}"
        below = f"({detect().cpu_brand}, {os.cpu_count()} cores, {datetime.now(UTC).date()})\n"
    for page in shown:
        made = REGION.sub(
            lambda one: one[1] + block + one[4] + below + one[6] if one[2] == name else one[0],
            texts[page],
        )
        page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAMPLES:
        write(chosen, SAMPLES[chosen])
