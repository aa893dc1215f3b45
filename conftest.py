"""What every test of this project runs under."""

from __future__ import annotations

import os
import signal
import sysconfig
from pathlib import Path

import pytest

import pytest_asperf

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test the checkout where the wheel was asked for; settle threads and hypothesis."""
    # Shells start jobs in the background with SIGINT ignored, and a session that a test interrupts
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # llama.cpp's threads spin where they wait for one another. Beside other tests, more than one of
    # them take several times as long as one alone.
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_THREAD_LIMIT", "1")
    if "TOX_ENV_NAME" in os.environ:
        _refuse_checkout(Path(pytest_asperf.__file__))
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _load_profile()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file without serial tests where only those are run, which saves seconds."""
    if config.option.markexpr != "serial" or collection_path.suffix != ".py":
        return None
    return True if b"mark.serial" not in collection_path.read_bytes() else None


def _refuse_checkout(imported: Path) -> None:
    installed = Path(sysconfig.get_path("purelib"))
    if not imported.resolve().is_relative_to(installed.resolve()):
        raise pytest.UsageError(
            f"tox tests the installed wheel, but pytest_asperf comes from {imported.parent}; "
            "call pytest, not python -m pytest, and leave the checkout out of PYTHONPATH"
        )


def _load_profile() -> None:
    from hypothesis import settings  # noqa: PLC0415  # the findings run without hypothesis

    settings.register_profile(
        "asperf",
        deadline=None,  # a busy machine is no failure
        derandomize="CI" in os.environ,
        max_examples=50,  # a later run has other examples, except in CI
    )
    settings.load_profile("asperf")
