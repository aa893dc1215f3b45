"""One pytest session's state: settings, hardware, engines' runners and reports; all made late."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.config.catalogue import Catalogue, load_catalogue
from pytest_asperf.config.progress import NOTHING_YET, Notify, SoFar
from pytest_asperf.config.settings import NICE, named_in_session, session_option
from pytest_asperf.errors import SETTING_NAMES, AsperfError, printable
from pytest_asperf.hardware.in_force import Hardware, detect, in_force
from pytest_asperf.measure.validity import BandwidthBounds
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.plugin.parsing import parse_settings
from pytest_asperf.plugin.registration import only_lists
from pytest_asperf.records.codec import encode
from pytest_asperf.report.session_meta import this_machine
from pytest_asperf.store.unsent import GrowingReport, check_store

if TYPE_CHECKING:
    import pytest

    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.markers import HardwareMark
    from pytest_asperf.config.spec import Build
    from pytest_asperf.hardware.machine import Bandwidth
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.report.progress_line import ProgressLine


class TerminalNotify(Notify):
    """Shows progress on pytest's terminal; silent under `-q`, on a pipe, and in an xdist worker.

    Waiting for another measurement is reported in these cases too: by a process without a terminal
    once, on its stderr.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._has_waited = False
        self._has_told = False
        self._place = ""
        self._file: IO[str] | None = None
        self._line: ProgressLine | None = None

    # Looked up when they are used: options are read before pytest registers its reporter.
    @cached_property
    def _terminal(self) -> Any:
        # An xdist worker has a terminal reporter too, without a reader.
        is_read = not hasattr(self._config, "workerinput")
        return self._config.pluginmanager.get_plugin("terminalreporter") if is_read else None

    @cached_property
    def _capture(self) -> Any:
        return self._config.pluginmanager.get_plugin("capturemanager")

    @property
    def _is_watched(self) -> bool:
        """True if a reader sees a line that comes and goes."""
        is_quiet = self._terminal is None or self._config.get_verbosity() < 0
        return not is_quiet and self._terminal.isatty and os.environ.get("TERM") != "dumb"

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """Show how far a measurement is."""
        if self._is_watched:
            self._opened().show(label, done, total, so_far, where=self._place)

    def done(self) -> None:
        """Remove the line, and go back to where pytest was writing."""
        line, file, self._line, self._file = self._line, self._file, None, None
        if line is not None and file is not None:
            line.clear()
            column = self._terminal._tw.width_of_current_line  # noqa: SLF001  # pytest offers no other way
            file.write(f"\x1b[1A\r\x1b[{column}C" if column else "\x1b[1A\r")
            file.close()

    def wait(self, reason: str) -> None:
        """Print the reason for a pause."""
        if self._is_watched:
            self._opened().wait(reason)
        else:
            self._has_waited = True
            self._write(f"waiting: {reason}")
            if self._terminal is None and not self._has_told:
                self._has_told = self._told_on_stderr(f"waiting: {reason}")

    def _told_on_stderr(self, text: str) -> bool:
        """Write a line, for a session whose process without a terminal waits for another one."""
        from pytest_asperf.hardware.machine_lock import holder_of, machine_lock_path  # psutil

        holder = holder_of(machine_lock_path())
        is_worker = hasattr(self._config, "workerinput")
        if holder is None or (is_worker and holder.is_sibling):
            return False
        return self.print_on_stderr(text)

    def print_on_stderr(self, text: str) -> bool:
        """Print a line where no terminal is; True if it could be."""
        if sys.__stderr__ is not None:
            with self._uncaptured():
                print(f"asperf: {text}", file=sys.__stderr__, flush=True)
        return sys.__stderr__ is not None

    def say(self, text: str) -> None:
        """Print a permanent line, unless the reader sees progress with a line for all tests."""
        if not self._is_watched or self._config.get_verbosity() > 0:
            self._write(text)

    def _write(self, text: str) -> None:
        self.done()
        if self._terminal is not None:
            with self._uncaptured():
                self._terminal.ensure_newline()
                self._terminal.write(f"asperf: {text}\n", flush=True)

    def take_waited(self) -> bool:
        """True if there was an unseen wait since the last call."""
        self.done()  # a waiting process need not measure afterwards
        waited, self._has_waited = self._has_waited, False
        return waited

    def _opened(self) -> ProgressLine:
        """The line, on the terminal itself: a test's output is captured at this time."""
        if self._line is not None:
            return self._line
        from pytest_asperf.report.progress_line import CursorConsole, ProgressLine  # rich

        with self._uncaptured():
            writer = self._terminal._tw  # noqa: SLF001  # as above
            writer.flush()
            own = writer._file  # noqa: SLF001  # as above
            # The terminal's encoding may lack letters of a name.
            file = os.fdopen(
                os.dup(own.fileno()), "w", encoding=own.encoding, errors="backslashreplace"
            )
            width = writer.fullwidth
        file.write("\n")
        self._file, self._place = file, self._test()
        self._line = ProgressLine(CursorConsole(file=file, force_terminal=True, width=width))
        return self._line

    def _test(self) -> str:
        """The test that runs, counted among those of the session."""
        session = self._config.pluginmanager.get_plugin("session")
        running = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        ids = [item.nodeid for item in session.items] if session else []
        return f"test {ids.index(running) + 1}/{len(ids)}" if running in ids else ""

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        context: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return context


class Session:
    """The state that a session's tests share. Nothing is detected or loaded before it is needed."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self.folder = folder  #: of the configuration file, where relative paths start
        self._named_outside = SETTING_NAMES.get()
        SETTING_NAMES.set(named_in_session)
        # Paths on the command line start at the working folder, those in the file at its own.
        self._build_folders = {
            key: config.invocation_params.dir if config.getoption(f"asperf_{key}") else folder
            for key in ("baseline", "candidate")
        }
        self._runners: dict[Engine, MeasurementRunner] = {}
        self._growing: dict[str, GrowingReport] = {}
        self.notify = TerminalNotify(config)
        self.written: list[Path] = []  #: at the end of the session, the report files
        #: at the end of the session, the reports that could not be written, and why
        self.unwritten: dict[Path, AsperfError] = {}
        self.stored: list[str] = []  #: at the end of the session, its part in the history
        self.closing: list[str] = []  #: the session's last lines, at any verbosity
        # For an xdist worker, whose reports another process reads.
        self._is_to_tell = hasattr(config, "workerinput")
        self._worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
        # The history is written by the process that reports, and only if something is measured.
        only_reads = hasattr(config, "workerinput") or only_lists(config)
        catalogue = load_catalogue(folder, shipped_models())
        self.settings = parse_settings(config, catalogue)
        self.workspace = Workspace(replace(catalogue, settings=self.settings))
        self._checked_store = None if only_reads else self.settings.store
        self.catalogue: Catalogue = self.workspace.catalogue

    @property
    def cache(self) -> Path:
        """The folder for files that are made once."""
        return self.workspace.cache

    @cached_property
    def hardware(self) -> Hardware:
        """The hardware that numbers are compared with."""
        return in_force(self.settings.hardware, detect())

    @property
    def is_live(self) -> bool:
        """True if this session measures; otherwise it judges published figures."""
        if self.settings.source == "auto":
            return self.hardware.is_this_machine
        return self.settings.source == "live"

    @property
    def elsewhere(self) -> str:
        """Why this session measures nothing, if its hardware is the reason; empty if not."""
        if self.is_live or self.settings.source != "auto":
            return ""
        hardware = self.hardware
        return (
            f"{hardware.name} is not this machine ({Hardware(hardware.machine).name}); "
            f"{session_option('hardware')}=auto measures here"
        )

    @property
    def _tested(self) -> Hardware:
        """The hardware that markers are compared with."""
        return self.hardware.measured_on if self.is_live else self.hardware

    def runner(self, engine: Engine) -> MeasurementRunner:
        """The runner of an engine.

        Models that other engines have loaded are freed: they would use memory that this one's need.
        """
        for other, runner in self._runners.items():
            if other != engine:
                runner.close()
        if engine not in self._runners:
            self._runners[engine] = self.workspace.runner(
                engine,
                self.notify,
                seed=self.seed,
                baseline=self.builds[0] if self.builds else None,
            )
        return self._runners[engine]

    @cached_property
    def builds(self) -> tuple[Build, Build] | None:
        """A gate's baseline and candidate; None if no candidate was named."""
        settings = self.settings
        if settings.candidate is None:
            return None

        def find(key: str, text: str) -> Build:
            catalogue = replace(self.catalogue, folder=self._build_folders[key])
            return catalogue.find_build(text, where=session_option(key))

        return find("baseline", settings.baseline), find("candidate", settings.candidate)

    @property
    def seed(self) -> int:
        """The seed of every random order."""
        return self.workspace.seed

    @property
    def gate_budget(self) -> Budget:
        """The budget of a gate."""
        return self.workspace.gate_budget

    @property
    def bounds(self) -> BandwidthBounds:
        """The memory bandwidth that bounds a measurement."""
        return BandwidthBounds(self.hardware, self._measure_bandwidth)

    def _measure_bandwidth(self, remeasure: bool) -> Bandwidth:  # noqa: FBT001  # its only argument
        machine = self.hardware.machine
        return self.workspace.bandwidth(machine, self.notify.wait, remeasure=remeasure)

    def check(self) -> None:
        """Reject settings whose fault would show only after everything was measured."""
        self.hardware  # noqa: B018  # checked when it is made
        if self.builds is not None:
            from pytest_asperf.builds.build_cache import require_source  # gates only

            for build in self.builds:
                require_source(build, cache=self.cache)
        if self._checked_store:
            check_store(self._checked_store)
            self._checked_store = None

    def growing(self, machine: str) -> GrowingReport:
        """The history's part of this session on a machine."""
        address, keep_days = str(self.settings.store), self.settings.store_keep
        report = GrowingReport(address, self.cache, keep_days)
        return self._growing.setdefault(machine, report)

    def print_priority(self, *, is_asked: bool) -> None:
        """Print the priority of engines where no header has it, or only one that was set."""
        is_first = self._worker in {"", "gw0"}  # the others run at it too
        if self.is_live and is_first and (is_asked or self.settings.nice != NICE):
            from pytest_asperf.engine_process import engine_priority

            if priority := engine_priority(self.settings.nice):
                self.notify.print_on_stderr(f"engines run at {priority}")

    def close(self) -> None:
        """End the engines' processes."""
        for runner in self._runners.values():
            runner.close()
        SETTING_NAMES.set(self._named_outside)

    def other_hardware(self, names: Collection[str]) -> str:
        """These profiles or chips and the hardware here, if it is none of them; otherwise empty."""
        is_here = self._tested.is_one_of(names)
        return "" if is_here else f"{' or '.join(names)}, this is {self._tested.name}"

    def unmet(self, mark: HardwareMark) -> str:
        """The reason why the hardware does not match a marker; empty if it does."""
        hardware = self._tested
        if other := self.other_hardware(mark.names):
            return f"needs {other}"
        limits = (
            ("GB of memory", mark.min_memory_gb, hardware.memory_gb),
            ("CPU cores", mark.min_cpu_cores, hardware.cpu_cores),
            ("GPU cores", mark.min_gpu_cores, hardware.gpu_cores),
        )
        for unit, minimum, actual in limits:
            if minimum is not None and (actual is None or actual < minimum):
                number = "an unknown number" if actual is None else number_text(actual, 4)
                return f"needs {number_text(minimum, 6)} {unit}, {hardware.name} has {number}"
        return ""

    def tell_machine(self) -> dict[str, object] | None:
        """The name and facts of a worker's machine; None after the first call."""
        if not self._is_to_tell:
            return None
        self._is_to_tell = False
        told: dict[str, object] = encode(this_machine(self.hardware, self.headline()))
        return told

    def headline(self, *, brief: bool = False) -> list[str]:
        """The lines with the hardware and engine of this session."""
        lines = [f"asperf: hardware {self.hardware.headline(brief=brief)}"]
        if not self.is_live:
            return [*lines, "asperf: published figures, nothing is measured"]
        try:
            engine = self.runner(self.settings.engine).describe()
        except AsperfError as error:  # each test reports it in full
            reason = "" if brief else f": {printable(error.what)}"
            return [*lines, f"asperf: live, engine {self.settings.engine} unavailable{reason}"]
        priority = f", {engine.priority}" if engine.priority else ""
        cache = "" if brief else f", cache {self.cache}"
        return [*lines, f"asperf: live, engine {engine.release}{priority}{cache}"]
