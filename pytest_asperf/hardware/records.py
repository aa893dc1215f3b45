"""The identity of this machine, and the records of a kind of machine that are kept.

The name is short, unique, and cannot be traced to a person. A record is one JSON file below the
cache folder.
"""

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pytest_asperf.errors import CacheError
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.machine import Machine

#: Names this machine in its stead: for hosted runners, where each run has a machine of its own.
NAMED: Final = "ASPERF_MACHINE"
_IOREG: Final = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
_PLATFORM_UUID: Final = re.compile(r'"IOPlatformUUID"\s*=\s*"([0-9A-Fa-f-]{36})"')


def machine_id(machine: Machine) -> str:
    """Twelve digits for the hardware that speed depends on, and for this copy of it.

    Only a hash of the operating system's own identifier is stored, as its documents require.
    """
    facts = {
        "os": machine.os,
        "arch": machine.arch,
        "cpu": machine.cpu_brand,
        "cores": machine.physical_cores,
        "usable": machine.usable_cores,
        "memory_gib": machine.memory_bytes and round(machine.memory_bytes / 2**30),
        "gpus": [(gpu.name, gpu.cores, gpu.memory_bytes) for gpu in machine.gpus],
        "copy": os.environ.get(NAMED) or _own_id(machine.os) or platform.node(),
    }
    text = f"pytest-asperf {json.dumps(facts, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _own_id(system: str) -> str | None:
    """The operating system's identifier of this machine; None if it has none."""
    if system == "macOS":
        return parse_platform_uuid(probe.run(_IOREG) or "")
    return parse_machine_id(probe.read(Path("/etc/machine-id")) or "")


def parse_machine_id(text: str) -> str | None:
    """Linux's identifier; images have a word in its place until their first start."""
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else None


def parse_platform_uuid(ioreg: str) -> str | None:
    """The UUID of a Mac in the I/O registry's text."""
    match = _PLATFORM_UUID.search(ioreg)
    return match[1] if match else None


def machine_key(machine: Machine) -> dict[str, Any]:
    """The facts that distinguish kinds of machine."""
    memory_bytes = machine.memory_bytes
    return {
        "arch": machine.arch,
        "cpu": machine.cpu_brand,
        "cores": machine.usable_cores,
        "memory_gib": None if memory_bytes is None else round(memory_bytes / 2**30),
    }


def record_path(cache_dir: Path, name: str, machine: Machine) -> Path:
    """The path of the record called `name` of a kind of machine."""
    text = json.dumps(machine_key(machine), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_dir / "hardware" / f"{name}-{digest}.json"


def load_record(path: Path, schema: int) -> dict[str, Any] | None:
    """A record, None if there is none of this schema; its values are not checked."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        # Absent or not asperf's: the next result replaces it.
        return None
    return record if isinstance(record, dict) and record.get("schema") == schema else None


def store_record(path: Path, record: Mapping[str, Any], *, what: str) -> None:
    """Write a record in one step, so that no reader meets half of it; errors call it `what`."""
    with _explained(path, what):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(record, stream, indent=1)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


@contextmanager
def changed_record(path: Path, fresh: Mapping[str, Any], *, what: str) -> Iterator[dict[str, Any]]:
    """Give a record, or a `fresh` one, to be changed, and write it before another process does."""
    from filelock import FileLock  # noqa: PLC0415 -- heavy, and needed only here

    lock = FileLock(path.with_suffix(".lock"))
    with _explained(path, what):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        record = load_record(path, fresh["schema"]) or dict(fresh)
        yield record
        store_record(path, record, what=what)
    finally:
        lock.release()


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"{what} cannot be kept in {path}: {error.strerror}",
            why="it would have to be measured again in every run",
            remedy="make the folder writable, free space, or set ASPERF_CACHE to another folder",
        ) from error
