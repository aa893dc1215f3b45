"""Programs of this interpreter that import nothing: pytest, `asperf` and the workers of xdist.

A start of pytest that measures costs 0.7 s of CPU before its first test. Here one process imports
all that such programs do, and `subprocess` has it fork them. The streams, the environment, the
folder and the cores are those of a started program. Their own workers are forked, too.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.fork_server import LOOP, ForkServer, ForkServers

#: How `subprocess` starts programs.
EXECUTE: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # has no other name
#: The names of its arguments, and of those that are ends of pipes.
_ARGUMENTS: Final = [*inspect.signature(EXECUTE).parameters][1:]
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
#: The arguments that a fork has for one value alone.
_USUAL: Final = dict.fromkeys(("executable", "preexec_fn", "gid", "gids", "uid")) | {
    "pass_fds": (),
    "shell": False,
    "umask": -1,
    "process_group": -1,
}
#: The modules that can be run; pytester has one word where a test has two.
_MODULES: Final = {
    ("-m", "pytest"): "pytest",
    ("-mpytest",): "pytest",
    ("-m", "pytest_asperf.cli"): "pytest_asperf.cli",
}
#: The variables that a fork obeys by itself.
_OF_FORKS: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING")
#: A worker of xdist reads its program.
_XDIST: Final = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
_FORKS: Final = (
    """
import atexit, io, os, pathlib, runpy, sys, tempfile
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

*_, tests, fd = sys.argv
del sys.argv[-2:]
import pytest
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    # Imports the plugins as pytest does, with their asserts rewritten.
    plugins = [f"-p{name}" for name in ("xdist", "pytest_asperf.published") if find_spec(name)]
    pytest.main([*sys.argv[1:], *plugins])
    os.chdir("/")
import pytest_asperf, xdist.remote
for module in walk_packages(pytest_asperf.__path__, "pytest_asperf."):
    part = module.name.split(".")[1]
    if part not in ("worker", "findings", "examples", "store", "strategies"):
        import_module(module.name)
sys.argv.append(fd)
sys.path.append(tests)
from tests.forked_workers import Forks
sys.path.pop()
# Programs do not find the tests.
for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[name]
"""
    + LOOP
    + """
if request["is_session"]:
    os.setsid()
if cache := os.environ.get("ASPERF_CACHE"):
    # Others may be measuring on this machine.
    pytest_asperf.hardware.machine_lock.machine_lock_path = lambda: pathlib.Path(cache) / "lock"
forks = Forks()
atexit.register(forks.close)
pytest_asperf.engine_process.process.start_interpreter = forks.start
for number, fd in enumerate(fds):
    os.dup2(fd, number)
    os.close(fd)
sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
encoding = os.environ.get("PYTHONIOENCODING") or sys.stdin.encoding
text = {"encoding": encoding, "errors": sys.stdin.errors}
sys.stdin = sys.__stdin__ = open(0, closefd=False, **text)
for number, name in enumerate(("stdout", "stderr"), 1):
    own = {**text, "errors": getattr(sys, name).errors}
    if os.environ.get("PYTHONUNBUFFERED") or not request["module"]:
        raw = open(number, "wb", 0, closefd=False)
        stream = io.TextIOWrapper(raw, **own, write_through=True)
    else:
        by_line = number == 2 or os.isatty(number)
        stream = open(number, "w", 1 if by_line else -1, closefd=False, **own)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
sys.orig_argv = request["command"]
sys.argv = ["", *request["words"]]
if request["module"]:
    sys.path[0] = request["folder"]
    sys.modules.pop("pytest_asperf.cli", None)  # it is run, not imported
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
else:
    exec(eval(sys.stdin.readline()))
"""
)


class Programs(ForkServers):
    """Starts some programs as forks, and all others as usual; a context manager.

    Args:
        options: of pytest, for its plugins.
    """

    def __init__(self, options: Sequence[str]) -> None:
        super().__init__()
        self._options = options

    def execute(self, process: Any, *given: Any) -> None:
        """Start a program; replaces `subprocess.Popen._execute_child`."""
        arguments = dict(zip(_ARGUMENTS, given, strict=True))
        command = arguments["args"]
        if isinstance(command, list | tuple) and _is_usual(arguments):
            command = [*map(os.fspath, command)]
            if (found := _program(command)) and (pid := self._fork(command, *found, arguments)):
                process.pid, process._child_created = pid, True
                process._close_pipe_fds(*(arguments[name] for name in _PIPES))
                return
        EXECUTE(process, *given)

    def _fork(
        self, command: list[str], module: str, words: list[str], arguments: Mapping[str, Any]
    ) -> int:
        pipes = (arguments[name] for name in ("p2cread", "c2pwrite", "errwrite"))
        own = arguments["env"]
        environment = dict(os.environ if own is None else own)
        folder = str(Path(arguments["cwd"] or ".").resolve())
        return self._server(environment, folder).fork(
            environment,
            folder,
            [fd if fd >= 0 else number for number, fd in enumerate(pipes)],
            command=command,
            module=module,
            words=words,
            is_session=arguments["start_new_session"],
        )

    def _server(self, environment: Mapping[str, str], folder: str) -> ForkServer:
        """The process that forks programs with the same variables of Python.

        Programs find what is in their folder anyhow, so that one process serves all folders.
        """
        own = {
            name: text
            for name, text in environment.items()
            if name.startswith("PYTHON") and name not in _OF_FORKS
        }
        ours, theirs = _search_path(os.environ), _search_path(environment) - {folder}
        if ours <= theirs <= ours.union(sys.path):
            own["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        # A thread for BLAS would be lost in a fork.
        variables = {**kept, **own, "OPENBLAS_NUM_THREADS": "1"}
        words = [sys.executable, "-c", _FORKS, *self._options, str(Path(__file__).parents[1])]
        start = partial(ForkServer, words, variables, own_session=False)
        return self.server(tuple(sorted(own.items())), start)


def _is_usual(arguments: Mapping[str, Any]) -> bool:
    return all(arguments[name] == usual for name, usual in _USUAL.items())


def _search_path(environment: Mapping[str, str]) -> set[str]:
    return {*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))}


def _program(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """The module that a command runs, "" if it is an xdist worker, and its words."""
    if command[0] != sys.executable:
        return None
    if [*command[1:]] == _XDIST:
        return "", []
    for words, module in _MODULES.items():
        if tuple(command[1 : 1 + len(words)]) == words:
            return module, [*command[1 + len(words) :]]
    return None
