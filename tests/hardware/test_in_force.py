"""The meaning of a name of hardware, on the machines of `fixtures/hardware`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.in_force import Hardware, in_force, memory_of
from pytest_asperf.hardware.linux import match_gpus
from pytest_asperf.hardware.machine import Gpu, Machine
from pytest_asperf.hardware.nvidia import parse_smi
from pytest_asperf.hardware.profiles import find_profile

FOLDERS = Path(__file__).parents[2] / "fixtures" / "hardware" / "macos"
MACS = sorted(f.parent.name for f in FOLDERS.glob("*/sysctl.txt") if f.parent.name != "m1-early")
ELSEWHERE = Machine(os="Linux", arch="x86_64", cpu_brand="AMD EPYC")


@pytest.mark.parametrize("folder", MACS)
def test_a_chip_by_any_of_its_names_is_this_machine(
    mac: Callable[[str], Machine], folder: str
) -> None:
    """The chip, the system's name of it and the chip variant all mean the detected variant."""
    machine = mac(folder)
    assert machine.profile is not None
    for name in (machine.profile.chip, machine.profile.brand_string, folder):
        hardware = in_force(name, machine)
        assert (hardware.name, hardware.is_this_machine) == (folder, True)
        assert not hardware.contradiction
        assert hardware.memory_gb == machine.memory_gb
        assert Hardware(machine).is_one_of(["h200", name])
        assert hardware.is_one_of([name])


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("m2ultra-60", "m2ultra-76"),
        ("m4max-32", "m4max-40"),
        ("m4max-40", "m4max-32"),
        ("m4-10", "m4pro"),
        ("m4pro-20", "m4"),
        ("m2max-38", "m2pro"),
        ("m1max-32", "m1"),
        ("m5-10", "m5pro"),
    ],
)
def test_another_bin_or_chip_is_not(mac: Callable[[str], Machine], folder: str, name: str) -> None:
    """A named chip variant is not another one, nor a chip another one with its first letters."""
    hardware = in_force(name, mac(folder))
    assert not hardware.is_this_machine
    assert hardware.contradiction
    assert not Hardware(mac(folder)).is_one_of([name])


@pytest.mark.parametrize("folder", ["m2ultra-76", "m4max-40"])
def test_a_chip_whose_bin_cannot_be_read_is_meant_by_its_name(
    mac: Callable[[str], Machine], folder: str
) -> None:
    """An M2 Ultra without a readable GPU is an M2 Ultra, of no variant."""
    machine = replace(mac(folder), profile=None, profile_note="no GPU cores")
    chip = folder.partition("-")[0]
    hardware = in_force(chip, machine)
    assert (hardware.profile, hardware.is_this_machine) == (None, True)
    assert hardware.is_one_of([chip])
    assert not hardware.is_one_of([folder])
    assert not hardware.is_one_of(["m1", "rtx4090"])
    assert not in_force(folder, machine).is_this_machine


def test_a_named_chip_has_the_memory_of_this_machine(mac: Callable[[str], Machine]) -> None:
    """This machine's size is known; only another machine has the largest one sold."""
    for machine, size in ((mac("m2ultra-60"), 64), (ELSEWHERE, 192)):
        memory = memory_of(in_force("m2ultra", machine))
        assert memory is not None
        assert memory.nbytes == size * 2**30
    asked = memory_of(in_force("m2ultra", mac("m2ultra-60")), 128)
    assert asked is not None
    assert asked.nbytes == 128 * 2**30


@pytest.mark.parametrize(("name", "profile"), [("m2ultra", "m2ultra-76"), ("m5", "m5-10")])
def test_elsewhere_a_chip_of_one_bandwidth_is_its_largest_bin(name: str, profile: str) -> None:
    """On a machine of another kind a bare name is the largest variant, which is printed."""
    hardware = in_force(name, ELSEWHERE)
    assert hardware.name == profile
    assert hardware.headline().endswith("declared; this machine is AMD EPYC")


def test_elsewhere_a_chip_of_two_bandwidths_needs_its_bin_or_memory() -> None:
    """On a machine of another kind, M4 Max is ambiguous; as a scope it means both."""
    with pytest.raises(HardwareError, match=r"m4max-32 \(410 GB/s\), m4max-40 \(546 GB/s\)"):
        in_force("m4max", ELSEWHERE)
    assert in_force("m4max", ELSEWHERE, memory_gb=64).name == "m4max-40"
    for profile in ("m4max-32", "m4max-40"):
        assert Hardware(ELSEWHERE, find_profile(profile)).is_one_of(["m4max"])
    assert not Hardware(ELSEWHERE).is_one_of(["m4max"])


def test_figures_of_a_chip_are_those_of_its_bins() -> None:
    """A figure published for `m5` or `m2ultra` belongs to each variant; a variant's to it alone."""
    ultra = Hardware(ELSEWHERE, find_profile("m2ultra-60"))
    assert ultra.is_one_of(["m2ultra"])
    assert not ultra.is_one_of(["m2ultra-76"])
    assert ultra.is_one_of([])


def test_an_unknown_scope_is_refused() -> None:
    """A misspelt chip would otherwise match nothing, without a message."""
    with pytest.raises(HardwareError, match="did you mean 'm2ultra'"):
        Hardware(ELSEWHERE).is_one_of(["m2ultr"])


@pytest.mark.parametrize("name", ["rtxa6000", "RTX A6000", "NVIDIA RTX A6000"])
def test_a_card_is_meant_by_its_names(recorded: Callable[[str], str], name: str) -> None:
    """Two cards of one kind have that kind's profile, and its own memory."""
    fields = ("name", "memory.total", "driver_version", "mig.mode.current", "utilization.gpu",
              "clocks_event_reasons.active")  # fmt: skip
    cards = parse_smi(recorded("nvidia/a6000-x2-event-reasons.csv"), fields)
    gpus = tuple(Gpu(card.name, memory_bytes=card.memory_bytes) for card in cards)
    profile = match_gpus(gpus).profile
    assert len(gpus) == 2
    machine = Machine(os="Linux", arch="x86_64", cpu_brand="AMD", gpus=gpus, profile=profile)
    hardware = in_force(name, machine)
    assert hardware.is_this_machine
    assert (hardware.name, hardware.profile and hardware.profile.bandwidth_gbs) == ("rtxa6000", 768)
    memory = memory_of(hardware)
    assert memory is not None
    assert memory.nbytes == 49140 * 2**20
