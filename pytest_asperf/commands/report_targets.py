"""The files that a command is asked to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.config.settings import parse_values
from pytest_asperf.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.config.setting_rules import ReportFormat

#: The format that is a folder.
PLOTS: Final = "plots"


def read_targets(
    words: Sequence[str], option: str, *named: tuple[ReportFormat, Path | None]
) -> list[ReportTarget]:
    """The targets of a repeatable option, and of options that name a file of one format.

    Raises:
        ConfigError: one is no FORMAT:FILE, or cannot be written.
    """
    targets = [ReportTarget(form, path) for form, path in named if path is not None]
    values = parse_values({"report": list(words)}, where=lambda _: option, folder=Path())
    targets += values["report"]
    for target in targets:
        _require_writable(target)
    return targets


def _require_writable(target: ReportTarget) -> None:
    """Refuse a file whose folder does not exist, before anything is measured."""
    path, is_folder = target.path, target.format == PLOTS
    if not path.parent.is_dir() or (path.is_dir() and not is_folder):
        raise ConfigError(
            f"cannot write {path}: "
            + ("its folder does not exist" if not path.parent.is_dir() else "it is a folder"),
            why="the report would be lost after everything was measured",
            remedy="name a file in a folder that exists",
        )
