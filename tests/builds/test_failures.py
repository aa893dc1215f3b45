"""The output of installers and compilers, as errors."""

from pathlib import Path

import pytest

from pytest_asperf.builds.step import StepFailure, compile_failure, counted, environment_failure
from pytest_asperf.errors import AsperfError, BuildError, CacheError

PLACES = {"folder": Path("/cache/builds/x"), "log": Path("/cache/builds/x.log")}


def error_of(*lines: str) -> AsperfError:
    """Return the error for an installation that printed these lines."""
    failure = StepFailure("pip", 1, lines)
    return environment_failure(failure, "llama-cpp-python==9", **PLACES)


def test_offline() -> None:
    """It has the reason of each try, and then that there is no version."""
    error = error_of(
        "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) "
        "after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection."
        "HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] "
        "Temporary failure in name resolution')': /simple/llama-cpp-python/",
        "ERROR: Could not find a version that satisfies the requirement llama-cpp-python==9 "
        "(from versions: none)",
        "ERROR: No matching distribution found for llama-cpp-python==9",
    )
    assert isinstance(error, BuildError)
    assert "the package index https://pypi.org/simple cannot be reached" in error.what
    assert "PIP_INDEX_URL" in error.remedy


def test_a_version_that_one_index_lacks_while_another_is_down() -> None:
    """An index that answered has the last word."""
    error = error_of(
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)'",
        "ERROR: Could not find a version that satisfies the requirement llama-cpp-python==9 "
        f"(from versions: {', '.join(f'0.3.{n}' for n in range(37))})",
        "ERROR: No matching distribution found for llama-cpp-python==9",
    )
    assert "No matching distribution" in error.what
    assert error.remedy.endswith("0.3.33, 0.3.34, 0.3.35, 0.3.36")
    assert "0.3.20" not in error.remedy


def test_a_full_disk() -> None:
    """For any process that runs out of space, it is the cache's disk."""
    error = error_of(
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    )
    assert isinstance(error, CacheError)
    assert "/cache/builds is full" in error.what


def test_no_ensurepip() -> None:
    """Debian splits it off."""
    error = error_of(
        "The virtual environment was not created successfully because ensurepip is not"
    )
    assert "python3-venv" not in error.remedy
    error = error_of("available.  ensurepip is not available.  apt install python3.11-venv")
    assert "python3-venv" in error.remedy


@pytest.mark.parametrize(
    "line",
    [
        "CMake Error: CMAKE_C_COMPILER not set, after EnableLanguage",
        "  No CMAKE_CXX_COMPILER could be found.",
        '  The C compiler "/usr/bin/cc" is not able to compile a simple test program.',
        "error: unable to execute 'gcc': No such file or directory",
    ],
)
def test_no_compiler(line: str) -> None:
    """A build without a compiler reports it, in a release as in a checkout."""
    for error in (error_of(line), compile_failure(StepFailure("cmake", 1, (line,)), "x", **PLACES)):
        assert "no working C or C++ compiler" in error.what
        assert "build-essential" in error.remedy


def test_the_first_error_is_shown_and_the_end() -> None:
    """A reader of thousands of lines gets those that show the failure, escaped and bounded."""
    noise = [f"[{n}/300] Building C object {n}.o" for n in range(200)]
    lines = [*noise, "a.c:1:2: error: \x1b[31mno" + 1000 * "o", *noise, "ninja: build stopped"]
    failure = StepFailure("cmake", 2, tuple(lines))
    detail = compile_failure(failure, "x", **PLACES).detail or ""
    shown = detail.splitlines()
    assert len(shown) < 25
    assert max(map(len, shown)) < 400
    assert "a.c:1:2: error: \\x1b[31mno" in shown[0]
    assert "ninja: build stopped" in shown[-2]
    assert shown[-1].endswith("/cache/builds/x.log")


def test_the_signal_is_named() -> None:
    """A compiler that ran out of memory is killed."""
    assert "signal 9" in compile_failure(StepFailure("cmake", -9, ()), "x", **PLACES).what


@pytest.mark.parametrize(
    ("line", "count"),
    [("[12/300] Building", (12, 300)), ("[ 45%] Building", (45, 100)), ("[x]", None), ("", None)],
)
def test_how_far_it_is(line: str, count: tuple[int, int] | None) -> None:
    """Ninja's and Make's counters are progress."""
    assert counted(line) == count
