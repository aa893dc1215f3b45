"""The environment variables that decide a build, and those that are kept from it."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_asperf.errors import BuildError

#: Variables that compilers, CMake and scikit-build-core read: those of the user's environment
#: decide the build as much as those of the build's own table.
_COMPILE: Final = frozenset({
    "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDACXX", "CUDAARCHS", "SDKROOT",
    "MACOSX_DEPLOYMENT_TARGET", "FORCE_CMAKE",
})  # fmt: skip
_COMPILE_PREFIXES: Final = ("CMAKE_", "SKBUILD_")
#: Changes the speed, not the result.
_PARALLEL: Final = "CMAKE_BUILD_PARALLEL_LEVEL"
#: pip's own settings.
_INSTALLER_PREFIX: Final = "PIP_"

#: Variables that would lead Python, pip or git to another environment or checkout.
_DISTURBING: Final = frozenset({
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__",
    "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV",
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
})  # fmt: skip

_TIMEOUT_S: Final = 300
_PROBE_TIMEOUT_S: Final = 30
_PROBE: Final = """
import json, sys, sysconfig
print(json.dumps({
    "path": getattr(sys, "_base_executable", sys.executable),
    "version": sys.version,
    "platform": sysconfig.get_platform(),
}))
"""
_INSTALLED: Final = """
import importlib.metadata, json, sysconfig
paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
packages = importlib.metadata.distributions(path=paths)
print(json.dumps({package.metadata["Name"]: package.version for package in packages}))
"""


def compiles_with(declared: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables that decide a compiler's result: declared ones over inherited."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name in _COMPILE or name.startswith(_COMPILE_PREFIXES)
    }
    own = {name: text for name, text in declared if not name.startswith(_INSTALLER_PREFIX)}
    return {name: text for name, text in (inherited | own).items() if name != _PARALLEL}


def installs_with(declared: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Hashes of pip's variables: an index's address may contain a password."""
    return {
        name: hashlib.sha256(text.encode()).hexdigest()
        for name, text in declared
        if name.startswith(_INSTALLER_PREFIX)
    }


def child_environment(declared: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The environment that a build is made in."""
    inherited = {name: text for name, text in os.environ.items() if name not in _DISTURBING}
    # Make, unlike Ninja, compiles one file at a time by default.
    quiet = {"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    return {_PARALLEL: str(os.cpu_count() or 1), **inherited, **quiet, **dict(declared)}


def run_program(
    command: Sequence[str], declared: Iterable[tuple[str, str]] = ()
) -> tuple[int, str, str]:
    """A program's status, its output, and its log."""
    try:
        ended = subprocess.run(
            command,
            env=child_environment(declared),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return 127, "", f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {_TIMEOUT_S} s"
    return ended.returncode, ended.stdout, ended.stderr


def interpreter_facts(python: Path) -> dict[str, Any]:
    """The path, version and platform of the interpreter below an interpreter."""
    return _ask(python, _PROBE)


def installed(python: Path) -> dict[str, str]:
    """The packages of an environment with their versions, sorted by name."""
    return dict(sorted(_ask(python, _INSTALLED).items()))


def _ask(python: Path, program: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-I", "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BuildError(
            f"the interpreter {python} does not run: {_reason(error)}",
            remedy="name a Python that runs, as `python` of the build",
        ) from error
    if not isinstance(answer, dict):
        raise AssertionError(f"{python} does not print a table")
    return answer


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return said[-1][:200] if said else f"status {error.returncode}"
    return str(error)[:200]
