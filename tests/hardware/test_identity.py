"""A machine's fingerprint: the same on each run, another one for each machine."""

from dataclasses import replace

import pytest

from pytest_asperf.hardware import records
from pytest_asperf.hardware.machine import Gpu, Machine
from pytest_asperf.hardware.records import machine_id, parse_machine_id, parse_platform_uuid

MINI = Machine(os="Linux", arch="arm64", cpu_brand="Apple M4", logical_cores=10, memory_bytes=2**34)
#: As `ioreg -rd1 -c IOPlatformExpertDevice` prints it.
IOREG = """+-o Mac16,10  <class IOPlatformExpertDevice, id 0x10000026f, registered, matched>
    {
      "IOPlatformUUID" = "0A1B2C3D-0000-1111-2222-333344445555"
      "IOPlatformSerialNumber" = "XXXXXXXXXX"
    }
"""


def test_hardware_that_matters_and_the_copy_make_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal hardware is distinguished by the system's own identifier, or by a given name."""
    own = {"id": "a" * 32}
    monkeypatch.setattr(records, "_own_id", lambda _: own["id"])
    monkeypatch.delenv(records.NAMED, raising=False)
    first = machine_id(MINI)
    assert machine_id(MINI) == first
    assert len({first, machine_id(replace(MINI, memory_bytes=2**35))}) == 2
    assert machine_id(replace(MINI, gpus=(Gpu("H200", driver="1"),))) == machine_id(
        replace(MINI, gpus=(Gpu("H200", driver="2"),))
    )
    own["id"] = "b" * 32
    second = machine_id(MINI)
    assert second != first
    assert own["id"] not in second
    monkeypatch.setenv(records.NAMED, "runner")
    named = machine_id(MINI)
    own["id"] = "c" * 32
    assert machine_id(MINI) == named


@pytest.mark.parametrize(
    ("text", "found"),
    [("0" * 32, "0" * 32), ("", None), ("uninitialized", None), ("0" * 31, None)],
)
def test_a_word_is_no_identifier(text: str, found: str | None) -> None:
    """Images that were never started share a word, and would be one machine."""
    assert parse_machine_id(text) == found


def test_a_macs_identifier_is_its_uuid_and_not_its_serial_number() -> None:
    """Without a UUID the host's name has to do."""
    assert parse_platform_uuid(IOREG) == "0A1B2C3D-0000-1111-2222-333344445555"
    assert parse_platform_uuid(IOREG.replace("UUID", "Name")) is None
