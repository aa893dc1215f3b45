"""The store that a command reads or writes, and what it says of it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_asperf.commands.console import print_text, stderr_console
from pytest_asperf.commands.project import open_project
from pytest_asperf.errors import AsperfError, ConfigError, printable
from pytest_asperf.report.json_report import document
from pytest_asperf.store.opening import open_store
from pytest_asperf.store.unsent import GrowingReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.measure.workspace import Workspace
    from pytest_asperf.records.report import Report
    from pytest_asperf.store.records import Store


def store_address() -> str:
    """The address of the store that an option or the project's configuration names."""
    address = open_project().settings.store
    if address is None:
        raise ConfigError(
            "no history is named",
            remedy="give --store FILE, or set `store` in [tool.asperf]",
        )
    return address


def history_of(*, create: bool = False) -> Store:
    """The store that is named, opened."""
    return open_store(store_address(), create=create)


class GateHistory:
    """Keeps a gate in the project's history, cell by cell; does nothing where there is none.

    Attributes:
        made: gives the report of an outcome.
    """

    def __init__(self, project: Workspace, made: Callable[[GateOutcome], Report]) -> None:
        address, keep_days = project.settings.store, project.settings.store_keep
        self._growing = GrowingReport(address, project.cache, keep_days) if address else None
        self.made = made

    def update(self, outcome: GateOutcome) -> None:
        """Keep the cells so far; if that fails, the end of the gate says so."""
        if self._growing:
            with suppress(AsperfError):
                self._growing.update(document(self.made(outcome)))

    def store(self, report: Report, *, kind: str) -> None:
        """Keep the whole report, and say where it went."""
        if self._growing is None:
            return
        kept = self._growing.finish(document(report), kind=kind)
        console = stderr_console()
        for line in (*kept.lines(), kept.complaint):
            if line:
                print_text(console, printable(line))
        if kept.error is not None and not kept.error.may_pass:
            raise kept.error


def read_json(path: Path, *, lines: bool = False) -> list[Any]:
    """The JSON values of a file: one, or one a line; ConfigError if it cannot be read."""
    try:
        text = path.read_bytes()
        return [json.loads(one) for one in (text.splitlines() if lines else [text])]
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        problem = f"{path} is not JSON: {printable(error, 200)}"
    raise ConfigError(
        problem,
        remedy="name a JSON report of pytest or of asperf gate",
    )
