"""Writes the printed samples of the pages: `python docs/samples.py [NAME...]` runs their commands.

A sample is a block between `<!-- sample: NAME -->` and `<!-- end -->`. Its command runs in an empty
folder, at 80 columns, and a part of its output is kept, with the machine and the date below it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
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
        first: matches the first line of the part.
        last: matches its last line; without it, the part goes on to the end.
        without: left out, from a line that matches the first to one that matches the second.
        is_dated: whether the command is written above the output, and machine and date below.
    """

    command: str
    first: str = ""
    last: str = ""
    without: tuple[str, str] | None = None
    is_dated: bool = True


SAMPLES: Final = {
    "readme": Sample("pytest test_mine.py --asperf-chunks=16", first="✓", last="✗", is_dated=False),
    "gate-readme": Sample("asperf gate current current", last="tg128@d1024"),
    "session": Sample("pytest test_mine.py --asperf-chunks=16", first="_ test_", last="assertions"),
    "gate": Sample(
        "asperf gate current current,type_k=q4_0,type_v=q4_0 --workload ppl,kld,memory",
        without=("^ppl asperf", "^what ran"),
    ),
    "bisect": Sample(
        "asperf bisect current current,type_k=q4_0,type_v=q4_0 --workload kld "
        "--builds current,n_ubatch=64,current,flash_attn=on,current,type_k=q8_0,type_v=q8_0,"
        "current,type_k=q4_0,type_v=q4_0"
    ),
}


def first_test() -> str:
    """The README's test, which `test_mine.py` has."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    return found[1] if found else ""


def printed(sample: Sample) -> str:
    """The part of a sample's output that its page shows, after a run of its command."""
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
    return part(sample, done.stdout)


def part(sample: Sample, output: str) -> str:
    """The lines from the first to the last one that a sample names.

    Raises:
        ValueError: the output has no such lines.
    """
    lines = [line.rstrip() for line in output.splitlines()]
    begin = next((n for n, line in enumerate(lines) if re.search(sample.first, line)), None)
    if begin is None:
        raise ValueError(f"{sample.command}: no line matches {sample.first!r}\n{output}")
    rest = lines[begin:]
    ends = [n for n, line in enumerate(rest) if sample.last and re.search(sample.last, line)]
    kept = rest[: ends[0] + 1] if ends else rest
    if sample.without:
        cut, go_on = (
            next(n for n, x in enumerate(kept) if re.search(p, x)) for p in sample.without
        )
        kept = kept[:cut] + kept[go_on:]
    return "\n".join(kept).strip("\n") + "\n"


def write(name: str) -> None:
    """Run a sample, and write its output into its page."""
    sample = SAMPLES[name]
    put(name, printed(sample))


def put(name: str, block: str) -> None:
    """Write a sample's output into its page."""
    sample = SAMPLES[name]
    now = datetime.now(UTC).date()
    below = ""
    if sample.is_dated:
        block = f"$ {sample.command}\n{block}"
        below = f"({detect().cpu_brand}, {os.cpu_count()} cores, {now})\n"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        made = REGION.sub(
            lambda one: one[1] + block + one[4] + below + one[6] if one[2] == name else one[0], text
        )
        if made != text:
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAMPLES:
        write(chosen)
