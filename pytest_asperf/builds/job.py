"""The making of one build: its folder, its log, and where its progress goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.builds.step import counted, run_step
from pytest_asperf.config.progress import SoFar
from pytest_asperf.errors import BuildError, printable
from pytest_asperf.modelfiles.cache_errors import explained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_asperf.config.progress import Notify


@dataclass(frozen=True, slots=True)
class Job:
    """One build at work, in the folder where it stays: environments cannot be moved."""

    title: str
    folder: Path
    notify: Notify

    @property
    def log(self) -> Path:
        """All that is printed while it is made."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def run(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Run one of its steps; a StepFailure if it ends with an error."""
        self.notify.progress(f"building {self.title}", 0, 100)

        def on_line(line: str) -> None:
            if (share := counted(line)) is not None:
                self.notify.progress(f"building {self.title}", *share, SoFar(counted="steps"))

        try:
            with explained(self.log.parent), self.log.open("ab"):
                pass
            run_step(command, cwd=self.folder, env=env, log=self.log, on_line=on_line)
        except FileNotFoundError as error:
            raise BuildError(
                f"{self.title}: {printable(command[0], 200)} cannot be started: {error.strerror}",
                remedy="install it, or correct PATH",
            ) from error
