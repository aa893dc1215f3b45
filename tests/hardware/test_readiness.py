from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.hardware import linux as on_linux
from pytest_asperf.hardware import macos as on_macos
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import (
    judge_cards,
    judge_load,
    judge_memory,
    judge_swap,
    judge_virtualisation,
)
from pytest_asperf.hardware.nvidia import CardReading
from pytest_asperf.hardware.probe import CpuTimes, other_cores, stolen_cores

Tree = Callable[[Mapping[str, str]], Path]

_POLICY = "sys/devices/system/cpu/cpufreq/policy0"
_LEVELS = ("nominal", "moderate", "heavy")


@pytest.mark.parametrize(
    ("busy", "load", "cores", "state"),
    [
        (0.3, 9.0, 8, "ok"),
        (0.6, 0.0, 2, "disturbing"),
        (3.0, 0.0, 64, "ok"),
        (None, 1.2, 2, "ok"),
        (None, 2.0, 2, "disturbing"),
        (None, None, 8, "unknown"),
        (0.0, None, None, "ok"),
    ],
)
def test_load(busy: float | None, load: float | None, cores: int | None, state: str) -> None:
    """The present use by others decides; the load average, which counts us, is only a fallback."""
    assert judge_load(busy, load, cores).state == state


def test_busy_cores_leave_our_own_time_out() -> None:
    """Busy time less this process's own, by the length of the window."""
    before = CpuTimes(at_s=10.0, busy_s=100.0, stolen_s=1.0, own_s=5.0)
    after = CpuTimes(at_s=10.5, busy_s=100.8, stolen_s=1.1, own_s=5.3)
    assert other_cores(before, after) == pytest.approx(1.0)
    assert stolen_cores(before, after) == pytest.approx(0.2)
    assert other_cores(before, before) is None


@pytest.mark.parametrize(
    ("used", "memory", "state"),
    [(0, 64e9, "ok"), (1e9, 64e9, "ok"), (4e9, 64e9, "disturbing"), (None, 64e9, "unknown")],
)
def test_swap(used: int | None, memory: int, state: str) -> None:
    """A little stale swap is normal, more than a twentieth of memory is not."""
    assert judge_swap(used, memory).state == state


@pytest.mark.parametrize(
    ("stall", "available", "state"),
    [
        (0.0, 0.5, "ok"),
        (2.5, 0.5, "disturbing"),
        (None, 0.05, "disturbing"),
        (None, None, "unknown"),
    ],
)
def test_memory_pressure(stall: float | None, available: float | None, state: str) -> None:
    """Stalled tasks or hardly any free memory disturb."""
    assert judge_memory(stall, available).state == state


def test_virtualisation_says_what_still_holds() -> None:
    """A guest is disturbed by neighbours it cannot see, and the remark advises pairs."""
    condition = judge_virtualisation(virtualised=True, stolen_cores=0.25)
    assert condition.state == "disturbing"
    assert "0.25 cores" in condition.detail
    assert "pairs" in condition.remedy
    assert judge_virtualisation(virtualised=False).state == "ok"
    assert judge_virtualisation(virtualised=None).state == "unknown"


@pytest.mark.parametrize(
    ("card", "state"),
    [
        (CardReading("H200", busy_percent=0, clock_reasons=0x1), "ok"),
        (CardReading("H200", busy_percent=60, clock_reasons=0x0), "disturbing"),
        (CardReading("H200", busy_percent=0, clock_reasons=0x40), "disturbing"),
        (CardReading("H200", busy_percent=0), "unknown"),
    ],
)
def test_cards(card: CardReading, state: str) -> None:
    """A card is ready when idle and free of clock limits, both of which must be known."""
    assert judge_cards((card,)).state == state


def test_pressure_stall(recorded: Callable[[str], str]) -> None:
    """The ten-second average of tasks that waited is read."""
    assert on_linux.parse_stall_percent(recorded("linux/pressure-memory.txt")) == 2.45


def test_throttle_counters_are_judged_by_their_growth(system_tree: Tree) -> None:
    """Events since boot are history; only new ones disturb, and no counter is no health."""
    counter = "sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"
    root = system_tree({counter.format(0): "12", counter.format(1): "3"})
    assert on_linux.read_throttle_events(root) == 15
    assert on_linux.read_throttle_events(root / "elsewhere") is None
    assert on_linux.judge_throttling(15, 15).state == "ok"
    assert on_linux.judge_throttling(15, 17).state == "disturbing"
    assert on_linux.judge_throttling(None, None).state == "unknown"


@pytest.mark.parametrize(
    ("files", "state", "word"),
    [
        (
            {"scaling_driver": "acpi-cpufreq", "scaling_governor": "performance"},
            "ok",
            "performance",
        ),
        (
            {"scaling_driver": "acpi-cpufreq", "scaling_governor": "powersave"},
            "disturbing",
            "power",
        ),
        (
            {
                "scaling_driver": "intel_pstate",
                "scaling_governor": "powersave",
                "energy_performance_preference": "balance_performance",
            },
            "ok",
            "powersave",
        ),
        (
            {
                "scaling_driver": "amd-pstate-epp",
                "scaling_governor": "powersave",
                "energy_performance_preference": "power",
            },
            "disturbing",
            "preference",
        ),
        (
            {
                "scaling_governor": "performance",
                "scaling_max_freq": "2000000",
                "cpuinfo_max_freq": "3500000",
            },
            "disturbing",
            "2 of 3.5 GHz",
        ),
    ],
)
def test_clock_policy(system_tree: Tree, files: dict[str, str], state: str, word: str) -> None:
    """The governor is judged by its driver's use of it."""
    root = system_tree({f"{_POLICY}/{name}": text for name, text in files.items()})
    condition = on_linux.power_condition(root)
    assert condition.state == state
    assert word in condition.detail


def test_a_draining_battery_disturbs_but_not_a_mouses(system_tree: Tree) -> None:
    """Only a battery that drives the system counts."""
    supply = "sys/class/power_supply"
    root = system_tree(
        {
            f"{supply}/mouse/type": "Battery",
            f"{supply}/mouse/scope": "Device",
            f"{supply}/mouse/status": "Discharging",
        }
    )
    assert on_linux.read_discharging(root) is None
    system_tree({f"{supply}/BAT0/type": "Battery", f"{supply}/BAT0/status": "Discharging"})
    assert on_linux.read_discharging(root) is True
    assert "on battery" in on_linux.power_condition(root).detail


def test_an_empty_tree_is_unknown_everywhere(tmp_path: Path) -> None:
    """If the kernel reports nothing, nothing counts as healthy."""
    states = {c.state for c in on_linux.memory_conditions(tmp_path)}
    assert states == {"unknown"}
    assert on_linux.power_condition(tmp_path).state == "unknown"


@pytest.mark.parametrize(
    ("custom", "batt", "state", "word"),
    [
        ("laptop", "ac", "ok", "automatic"),
        ("laptop", "battery", "disturbing", "low power mode"),
        ("desktop", "ac", "ok", "high power"),
        ("desktop", "battery", "disturbing", "on battery"),
    ],
)
def test_power_mode_of_the_source_in_use(
    recorded: Callable[[str], str], custom: str, batt: str, state: str, word: str
) -> None:
    """Each source has its own mode, under either key, and the one in use counts."""
    condition = on_macos.judge_power(
        on_macos.parse_power_modes(recorded(f"macos/pmset-custom-{custom}.txt")),
        on_macos.parse_power_source(recorded(f"macos/pmset-batt-{batt}.txt")),
    )
    assert condition.state == state
    assert word in condition.detail


def test_low_power_mode_on_the_charger_disturbs() -> None:
    """Low power mode slows the machine on mains power as well."""
    assert on_macos.judge_power({"AC Power": 1}, "AC Power").state == "disturbing"
    assert on_macos.judge_power({}, "AC Power").state == "unknown"


@pytest.mark.parametrize(
    ("level", "state"), [(0, "ok"), (1, "disturbing"), (9, "disturbing"), (None, "unknown")]
)
def test_thermal_level(level: int | None, state: str) -> None:
    """Only thermal level 0 is free of throttling, and silence is not 0."""
    assert on_macos.judge_thermal(level, _LEVELS).state == state


def test_thermal_pressure_output() -> None:
    """The number comes after its key."""
    assert on_macos.parse_thermal_pressure("com.apple.system.thermalpressurelevel 2\n") == 2
    assert on_macos.parse_thermal_pressure("com.apple.system.thermalpressurelevel 0\n") == 0
    assert on_macos.parse_thermal_pressure("com.apple.system.thermalpressurelevel\n") is None


@pytest.mark.parametrize(
    ("pressure", "process_state", "state"),
    [
        ("", "", "unknown"),
        ("com.apple.system.thermalpressurelevel 0\n", "", "unknown"),
        ("com.apple.system.thermalpressurelevel 0\n", "execution error: -1728", "unknown"),
        ("com.apple.system.thermalpressurelevel 0\n", "0\n", "ok"),
        ("com.apple.system.thermalpressurelevel 0\n", "2\n", "disturbing"),
        ("com.apple.system.thermalpressurelevel 1\n", "0\n", "disturbing"),
    ],
)
def test_a_thermal_level_that_no_source_has_is_unknown(
    pressure: str, process_state: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero is also printed for an unset key, so another source has to confirm it."""
    printed = {"/usr/bin/notifyutil": pressure, "/usr/bin/osascript": process_state}
    monkeypatch.setattr(probe, "run", lambda words, **_: printed.get(words[0]))
    found = {condition.name: condition.state for condition in on_macos.conditions()}
    assert found["thermal level"] == state


@pytest.mark.parametrize(
    ("level", "state"), [(1, "ok"), (2, "disturbing"), (4, "disturbing"), (None, "unknown")]
)
def test_memory_level(level: int | None, state: str) -> None:
    """Warning and critical disturb."""
    assert on_macos.judge_memory_level(level).state == state


def test_swap_usage_output() -> None:
    """The used part is read in bytes."""
    text = "total = 2048.00M  used = 1024.50M  free = 1023.50M  (encrypted)"
    assert on_macos.parse_swap_used(text) == int(1024.5 * 2**20)


def test_gpu_in_use_and_translation() -> None:
    """A busy GPU and an interpreter under Rosetta are both named."""
    assert on_macos.judge_gpu(3).state == "ok"
    assert on_macos.judge_gpu(80).state == "disturbing"
    assert on_macos.judge_gpu(None).state == "unknown"
    guest = on_macos.judge_gpu(0, is_guest=True)
    assert guest.state == "disturbing"
    assert "paravirtual" in guest.detail
    assert on_macos.judge_translation({"sysctl.proc_translated": "1"}).state == "disturbing"
    assert on_macos.judge_translation({}).state == "ok"


@given(st.text() | st.text(alphabet="used= 0123456789.M\npowermode:AC'N dawi fr"))
def test_parsers_never_raise(text: str) -> None:
    """Any text at all gives samples or unknowns."""
    on_macos.parse_swap_used(text)
    on_linux.parse_stall_percent(text)
    assert on_macos.parse_thermal_pressure(text) is None
    assert all(mode >= 0 for mode in on_macos.parse_power_modes(text).values())
    assert on_macos.parse_power_source(text) != ""


@given(st.decimals(0, 100, places=2))
def test_readings_are_those_printed(number: Decimal) -> None:
    """Used swap is in MiB and a stall in percent; a negative number is unknown."""
    swap, stall = "total = 2048.00M  used = {}M  free = 1.00M", "some avg10={} avg60=0.00"
    assert on_macos.parse_swap_used(swap.format(number)) == int(number * 2**20)
    assert on_linux.parse_stall_percent(stall.format(number)) == float(number)
    assert on_macos.parse_swap_used(swap.format(f"-{number}")) is None
    assert on_linux.parse_stall_percent(stall.format(f"-{number}")) is None
