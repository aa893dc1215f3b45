"""Several machines: the same tests on each, by xdist's `--dist=each`."""

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from typing import Any, Final

import pytest

from pytest_asperf import __version__
from pytest_asperf.config.settings import session_option
from pytest_asperf.errors import Advice, AsperfError, printable
from pytest_asperf.plugin.carried import worker_of
from pytest_asperf.plugin.registration import was_configured
from pytest_asperf.plugin.stash import session_of
from pytest_asperf.records.kinds import BrokenRecord, Noted

#: Prints a worker's needs, which the other end must have too.
_PROBE: Final = "import execnet, pytest, pytest_asperf as p; print('asperf', p.__version__)"
_CONNECT_S, _ANSWER_S = 10, 60
#: The names that execnet gives.
_NUMBERED: Final = re.compile(r"gw\d+")
_AGAIN: Final = "run it alone with the same gateway"


@dataclass(frozen=True, slots=True)
class Absent:
    """A machine that measured nothing, or not all."""

    machine: str
    what: str
    remedy: str

    def noted(self) -> Noted:
        """Its record in a report."""
        record = BrokenRecord(
            subject="machine", found=printable(self.what), advice=(Advice(self.remedy),)
        )
        return Noted(self.machine, record, self.machine)


class Fleet:
    """Watches the machines of a session; pytest's plugin on the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.unreached: list[Absent] = []  #: machines that were left out before the first test
        #: of the machine of each worker, in the order of --tx; empty until they are known
        self.names: dict[str, str] = {}
        self._collected: dict[str, int] = {}
        self._finished: Counter[str] = Counter()
        self._errors: dict[str, tuple[str, str]] = {}
        self._timers: dict[str, Timer] = {}
        # A worker that is restarted on a machine that is gone ends the session on all others.
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = "0"

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: list[Any]) -> None:
        """Leave out the machines that cannot be reached, and keep their names."""
        self.names = {spec.id: machine_name(spec) for spec in specs}
        with ThreadPoolExecutor(max_workers=len(specs)) as pool:
            found = list(pool.map(lambda spec: probed(spec, was_configured(config)), specs))
        self.unreached = [absent for absent in found if absent is not None]
        specs[:] = [spec for spec, absent in zip(specs, found, strict=True) if absent is None]
        # Its scheduler counts them there.
        config.option.tx = list(map(str, specs))
        if not specs:
            raise pytest.UsageError("\n".join(map(_line, self.unreached)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Count the tests of a machine, and begin to time all when the last one is ready."""
        worker = node.gateway.id
        self._collected[worker] = len(ids)
        with suppress(AsperfError):  # each test reports it
            if limit_s := session_of(self._config).settings.machine_timeout:
                self._timers[worker] = Timer(limit_s, self._give_up, (node.gateway, limit_s))
                self._timers[worker].daemon = True
        if len(self._timers) == len(self._config.option.tx):
            for timer in self._timers.values():
                timer.start()

    def _give_up(self, gateway: Any, limit_s: float) -> None:
        """End a machine's connection; xdist treats it as lost."""
        remedy = f"test less there, or allow more time: {session_option('machine_timeout')}"
        self._errors[gateway.id] = f"{limit_s:g} s are over", remedy
        gateway._io.kill()  # noqa: SLF001  # as execnet ends gateways that do not answer

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Keep why a worker ended."""
        worker = node.gateway.id
        if worker in self._timers:
            self._timers[worker].cancel()
        if error:
            remedy = f"check its power, sleep settings and network, then {_AGAIN}"
            self._errors.setdefault(worker, (printable(error, 300), remedy))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a machine's finished tests, and note its name if the user gave none."""
        worker = worker_of(report)
        self._finished[worker] += report.when == "teardown"
        if told := getattr(report, "asperf_machine", None):
            self.names[worker] = self.names.get(worker) or told["name"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A machine that did not measure fails the session."""
        if self.absent() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the machines that did not measure all, with the remedy."""
        from pytest_asperf.report.wrapping import say

        for absent in self.absent():
            say(terminalreporter, f"asperf: {_line(absent)}", red=True)

    def absent(self) -> list[Absent]:
        """The machines that measured nothing, or not all."""
        ended = [
            self._ended(worker, self._finished[worker], self._collected.get(worker))
            for worker in dict.fromkeys((*self._collected, *self._errors))
            if worker in self._errors or self._finished[worker] < self._collected[worker]
        ]
        return [*self.unreached, *ended]

    def _ended(self, worker: str, n: int, planned: int | None) -> Absent:
        tests = "before its first test" if planned is None else f"after {n} of {planned} tests"
        error, remedy = self._errors.get(worker, ("the session ended first", _AGAIN))
        return Absent(self.names.get(worker) or worker, f"ended {tests}: {error}", remedy)


def _line(absent: Absent) -> str:
    return f"{absent.machine} {absent.what}; what to do: {absent.remedy}"


def machine_name(spec: Any) -> str:
    """The user's name of a gateway's machine; empty for one of this machine without a name."""
    if not _NUMBERED.fullmatch(spec.id):
        return str(spec.id)
    return printable(spec.ssh.split()[-1].rpartition("@")[2]) if spec.ssh else ""


def probed(spec: Any, is_configured: bool) -> Absent | None:  # noqa: FBT001  # one of two facts
    """The reason why a machine cannot run a worker; None if it can, or is this one."""
    if not spec.ssh:
        return None
    try:
        ran = subprocess.run(
            ssh_words(spec),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
        answer, said, status = ran.stdout, ran.stderr, ran.returncode
    except subprocess.TimeoutExpired:
        answer, said, status = "", f"no answer in {_ANSWER_S} s", 255
    except OSError as error:
        answer, said, status = "", f"ssh: {error.strerror}", 255
    return judge_probe(spec, status, answer, said, is_configured=is_configured)


def ssh_words(spec: Any) -> list[str]:
    """The command that reads a machine's version, over execnet's own connection."""
    config = ["-F", str(spec.ssh_config)] if spec.ssh_config is not None else []
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}"]
    asked = f"{spec.python or 'python'} -c {shlex.quote(_PROBE)}"
    return ["ssh", *config, *options, *spec.ssh.split(), asked]


def judge_probe(
    spec: Any, status: int, answer: str, said: str, *, is_configured: bool
) -> Absent | None:
    """The meaning of a machine's answer."""
    name, lines = machine_name(spec), [line for line in said.splitlines() if line.strip()]
    last = printable(lines[-1], 200) if lines else f"exit status {status}"
    python = spec.python or "python"
    if status == 255:  # ssh's own failures
        return Absent(name, f"cannot be reached: {last}", f"try: ssh -o BatchMode=yes {spec.ssh}")
    if status:
        if not is_configured and "No module named 'pytest_asperf'" in said:
            return None  # its tests need none of it
        remedy = f"name with //python= one that has pytest-asperf {__version__} and pytest-xdist"
        return Absent(name, f"cannot run pytest-asperf with {python}: {last}", remedy)
    version = answer.partition("asperf ")[2].strip()
    if version == __version__:
        return None
    what = f"has pytest-asperf {printable(version, 40)}, and this machine {__version__}"
    return Absent(name, what, "install the same version on all machines")
