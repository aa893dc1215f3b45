"""`assert_disk`: how much room files take on a disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.limit_verdict import LimitForm, judge_within
from pytest_asperf.analysis.stats.estimate import Estimate, counted_text, memory_text
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.api.measurement_context import Model, RunningTest, settle
from pytest_asperf.errors import ConfigError
from pytest_asperf.modelfiles.disk_use import disk_use

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_asperf.analysis.verdict import Verdict

_GIB: Final = 2**30
_MIB: Final = 2**20
_SIZES: Final = LimitForm(
    "assert_disk",
    "a size",
    {"MB": 1e6, "MiB": _MIB, "GB": 1e9, "GiB": _GIB, "TB": 1e12, "TiB": 2**40},
    '"3 GiB", "500 MB" or 3.0, which is in GiB',
    plain=_GIB,
)


def assert_disk(
    files: str | Path | Model | Iterable[str | Path | Model],
    *,
    at_most: str | float,
) -> Verdict:
    """Claim that files take at most so much room on the disk together.

    What is judged is the allocated size, in which a file of several names counts once: hard links,
    and the blobs that snapshots of a hub's cache share. Files that a file system clones without
    telling, as APFS does, count in full.

    Args:
        files: paths of files and folders, or the `model` fixture; one or several.
        at_most: `"3 GiB"`, `"3 GB"`, `"500 MiB"` or a number of GiB.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no files, or a limit that is no size.
        ModelError: a path that does not exist.
    """
    __tracebackhide__ = True
    limit = _SIZES.read(at_most, "at_most") or 0.0
    named = [files] if isinstance(files, str | Path | Model) else list(files)
    if not named:
        raise ConfigError(
            "assert_disk: no files",
            why="nothing takes no room",
            remedy='name files or folders, as in assert_disk(["draft.gguf"], at_most="1 GiB")',
        )
    paths = [one.path if isinstance(one, Model) else Path(one) for one in named]
    use = disk_use(paths)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    ran = (
        ("apparent size", memory_text(use.apparent)),
        ("counted once", f"{use.n_shared} further names of them"),
    )
    subject = Subject(
        f"disk use of {paths[0].name}{more}",
        "live",
        ran,
        if_failed="remove levels or compiled forms that nothing uses, or allow more",
    )
    unit, size = ("GiB", _GIB) if limit >= _GIB else ("MiB", _MIB)
    estimate = Estimate.exact(use.allocated / size, unit)
    verdict = judge_within(estimate, subject, at_most=limit / size)
    verdict = replace(verdict, basis=counted_text(use.n_files, "files"))
    records = [one.measurement.record for one in named if isinstance(one, Model)]
    return settle(verdict, records[0] if records else RunningTest())
