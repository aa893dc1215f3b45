"""The formats of a report: what writes each, from checked JSON reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import CacheError, ConfigError
from pytest_asperf.records.report import of_each_machine
from pytest_asperf.report.flat_files import bencher, comma_separated, github_benchmark
from pytest_asperf.report.json_report import document, serialise
from pytest_asperf.report.markdown import markdown
from pytest_asperf.report.page import page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.report.report_data import ReportData

    Writer = Callable[[Sequence[ReportData]], bytes]


def _json(reports: Sequence[ReportData]) -> bytes:
    whole = reports[0].whole
    is_one = all(report.whole is whole for report in reports)
    if not is_one or len(reports) != len(of_each_machine(whole)):
        raise ConfigError(
            f"json: takes one report, not {len(reports)}",
            why="a file is of one session",
            remedy="name one file, or write html, md or csv",
        )
    return serialise(document(whole))


#: What writes a file of each format.
WRITERS: Final[Mapping[str, Writer]] = {
    "json": _json,
    "html": page,
    "md": markdown,
    "csv": comma_separated,
    "bencher": bencher,
    "github-benchmark": github_benchmark,
}


def write(target: ReportTarget, reports: Sequence[ReportData]) -> None:
    """Write the reports to a file.

    Raises:
        CacheError: it cannot be written.
    """
    content = WRITERS[target.format](reports)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        target.path.write_bytes(content)
    except OSError as err:
        raise CacheError(
            f"the report {target.path} cannot be written: {err}",
            why="a program that reads it would find an older report, or none",
            remedy="name a file in a folder that exists and that you may write to",
        ) from err
