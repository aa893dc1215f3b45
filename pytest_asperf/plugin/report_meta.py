"""When, where and how a session was run, for its report."""

from __future__ import annotations

import datetime as dt
import platform
import shlex
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf import __version__
from pytest_asperf.config.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_asperf.plugin.session import Session

#: What a report leaves out when it says how to repeat a test.
_NOT_REPEATED: Final = ("--asperf-report", "--asperf-seed")


def session_meta(config: pytest.Config, session: Session, began: float) -> dict[str, Any]:
    """The facts of a session that began at this time, as plain data."""
    # Workers of xdist draw seeds of their own.
    is_shared = config.pluginmanager.hasplugin("dsession")
    seed = session.settings.seed if is_shared else session.seed
    options = list(_own_options(config.invocation_params.args))
    return {
        "version": __version__,
        "command": shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        "options": [*options, *([] if seed is None else [f"--asperf-seed={seed}"])],
        "time": dt.datetime.fromtimestamp(began, dt.UTC).isoformat(timespec="seconds"),
        "duration_s": round(time.time() - began, 3),
        "host": platform.node(),
        "python": platform.python_version(),
        "seed": seed,
        "machine": _machine(session),
    }


def _own_options(args: Sequence[object]) -> Iterator[str]:
    """The options of this plugin on a command line, each with its value in one word."""
    words = list(map(str, args))
    for number, word in enumerate(words):
        option, _, value = word.partition("=")
        if option not in OPTIONS or option in _NOT_REPEATED:
            continue
        yield word if value else f"{word}={''.join(words[number + 1 : number + 2])}"


def _machine(session: Session) -> dict[str, Any]:
    machine = session.hardware.machine
    profile = session.hardware.profile
    return {
        "hardware": session.hardware.name,
        "profile": profile.id if profile else None,
        "os": machine.os,
        "arch": machine.arch,
        "cpu": machine.cpu_brand,
        "physical_cores": machine.physical_cores,
        "logical_cores": machine.logical_cores,
        "usable_cores": machine.usable_cores,
        "memory_bytes": machine.memory_bytes,
        "virtualised": machine.virtualised,
        "gpus": [asdict(gpu) for gpu in machine.gpus],
    }
