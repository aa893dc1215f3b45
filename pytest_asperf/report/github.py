"""The output for GitHub: lines that annotate a job, and its summary."""

import os
from pathlib import Path
from typing import Final

from pytest_asperf.errors import printable
from pytest_asperf.report.lines import Line
from pytest_asperf.report.markdown import markdown
from pytest_asperf.report.report_data import ReportData

_STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
_ACTIONS: Final = "GITHUB_ACTIONS"
_WORKSPACE: Final = "GITHUB_WORKSPACE"
#: Fails a job; the others are remarks.
_ERRORS: Final = ("FAIL", "INVALID")
_LONGEST: Final = 1000
#: GitHub rejects the whole summary of a step if it is longer than 1 MiB.
_MOST_BYTES: Final = 2**20 - 2**12
#: GitHub shows this many annotations of each severity for a step.
_MOST: Final = 10


def is_job() -> bool:
    """True if this is a job of GitHub's, or one that has a file for its summary."""
    return os.environ.get(_ACTIONS) == "true" or bool(os.environ.get(_STEP_SUMMARY))


def tell(report: ReportData, root: Path = Path()) -> list[str]:
    """Add the report to the job's summary, and give the lines that annotate the job.

    A summary that cannot be written is one of them. Tests are named from `root`, and GitHub wants
    files as they are in the repository.
    """
    lines = add_to_summary(markdown([report]))
    if os.environ.get(_ACTIONS) == "true":
        folder = _in_repository(root)
        told = [_annotation(claim, folder) for claim in report.claims if claim.outcome != "PASS"]
        for level in ("::error", "::warning"):
            lines += [line for line in told if line.startswith(level)][:_MOST]
    return lines


def _cut(text: bytes, most: int) -> bytes:
    """A text up to the end of a line, of at most so many bytes."""
    if len(text) <= most:
        return text
    return text[: max(0, most)].rpartition(b"\n")[0] + b"\n\nCut here: it was too long.\n"


def add_to_summary(text: bytes) -> list[str]:
    """Add a text to the summary of GitHub's job, if this is one; returns a remark."""
    if not (place := os.environ.get(_STEP_SUMMARY)):
        return []
    try:
        with Path(place).open("ab") as file:
            file.write(_cut(text, _MOST_BYTES - file.tell()))  # a step may have several
    except OSError as error:
        return [printable(f"asperf: {place} could not be written: {error.strerror}")]
    return []


def _in_repository(root: Path) -> Path:
    workspace = Path(os.environ.get(_WORKSPACE, root))
    return root.relative_to(workspace) if root.is_relative_to(workspace) else Path()


def _annotation(claim: Line, folder: Path) -> str:
    """The line of an assertion that did not pass; one that fails no test is a warning."""
    is_error = claim.outcome in _ERRORS and claim.source == "live" and not claim.excused
    level = "error" if is_error else "warning"
    file, _, name = claim.test.partition("::")
    place = f"file={_property((folder / file).as_posix())}," if name else ""
    title = _property(f"{claim.outcome} {claim.test}")
    text = f"{claim.subject} {claim.threshold}: {claim.measured}"
    return f"::{level} {place}title={title}::{_data(text)}"


def _data(text: str) -> str:
    """A text that ends neither its line nor its command."""
    return printable(text, _LONGEST).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
