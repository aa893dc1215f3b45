import json
import platform
from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.hardware import macos, probe
from pytest_asperf.hardware.in_force import Hardware, memory_of
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.macos import (
    ProfilerFacts,
    machine_from,
    parse_cores_by_level,
    parse_gpu_busy_percent,
    parse_gpu_cores,
    parse_number_processors,
    parse_sysctl,
    parse_system_profiler,
)

_PE = (("Performance", 12), ("Efficiency", 4))


@pytest.mark.parametrize(
    ("name", "levels", "gbs"),
    [
        ("m1-8", (("Performance", 4), ("Efficiency", 4)), 68.25),
        ("m1max-32", (("perflevel0", 8), ("perflevel1", 2)), 400),
        ("m1pro-16", (("perflevel0", 8), ("perflevel1", 2)), 200),
        ("m2pro-19", (("Performance", 8), ("Efficiency", 4)), 200),
        ("m2max-38", (("Performance", 8), ("Efficiency", 4)), 400),
        ("m2ultra-60", (("Performance", 16), ("Efficiency", 8)), 800),
        ("m2ultra-76", (("Performance", 16), ("Efficiency", 8)), 800),
        ("m3max-30", (("Performance", 10), ("Efficiency", 4)), 300),
        ("m3max-40", _PE, 400),
        ("m4-10", (("Performance", 4), ("Efficiency", 6)), 120),
        ("m4pro-20", (("Performance", 10), ("Efficiency", 4)), 273),
        ("m4max-32", (("Performance", 10), ("Efficiency", 4)), 410),
        ("m4max-40", _PE, 546),
        ("m5-10", (("Super", 4), ("Efficiency", 6)), 153),
        ("m5max-40", (("Super", 6), ("Performance", 12)), 614),
        ("m5pro-16", (("Super", 5), ("Performance", 10)), 307),
        ("m6-16gb", (("Super", 2), ("Performance", 4), ("Efficiency", 6)), 153),
        ("m6-32gb", (("Super", 2), ("Performance", 4), ("Efficiency", 6)), 170),
    ],
)
def test_recorded_macs_are_recognised(
    mac: Callable[[str], Machine], name: str, levels: tuple[tuple[str, int], ...], gbs: float
) -> None:
    """The sysctl keys and the I/O registry show chip, variant, core types and bandwidth."""
    machine = mac(name)
    assert machine.profile is not None
    assert machine.profile.id == name
    assert machine.profile_note == ""
    assert machine.cores_by_level == levels
    assert machine.physical_cores == sum(cores for _, cores in levels)
    assert machine.bandwidth is not None
    assert (machine.bandwidth.gbs, machine.bandwidth.kind) == (gbs, "advertised")
    assert machine.bandwidth.peak_gbs >= gbs
    assert machine.virtualised is False


def test_the_early_brand_string_names_no_chip(mac: Callable[[str], Machine]) -> None:
    """'Apple processor' is unknown, for any other facts."""
    machine = mac("m1-early")
    assert machine.profile is None
    assert "Apple processor" in machine.profile_note
    assert machine.bandwidth is None
    assert machine.cores_by_level == (("perflevel0", 4), ("perflevel1", 4))


def test_system_profiler_names_the_chip_where_sysctl_does_not(
    recorded: Callable[[str], str],
) -> None:
    """The fallback's chip name is a fact, too."""
    sysctl = parse_sysctl(recorded("macos/m1-early/sysctl.txt"))
    profiler = parse_system_profiler(recorded("macos/m1-early/system_profiler.json"))
    machine = machine_from(sysctl, None, profiler, "arm64")
    assert machine.profile is not None
    assert machine.profile.id == "m1-8"


def test_unread_gpu_cores_leave_an_m3_max_unknown(recorded: Callable[[str], str]) -> None:
    """Two bandwidths share the name M3 Max, so that without GPU cores neither is reported."""
    sysctl = parse_sysctl(recorded("macos/m3max-30/sysctl.txt"))
    machine = machine_from(sysctl, None, ProfilerFacts(), "arm64")
    assert machine.profile is None
    assert machine.bandwidth is None
    assert "m3max-30, m3max-40" in machine.profile_note
    assert "GPU cores could not be read" in machine.profile_note


def test_unread_gpu_cores_still_leave_the_one_bandwidth_of_an_m2_ultra(
    recorded: Callable[[str], str],
) -> None:
    """If all variants share the bandwidth, it is known although the variant is not."""
    sysctl = parse_sysctl(recorded("macos/m2ultra-76/sysctl.txt"))
    machine = machine_from(sysctl, None, ProfilerFacts(), "arm64")
    assert machine.profile is None
    assert machine.bandwidth is not None
    assert machine.bandwidth.gbs == 800


def test_gpu_cores_that_no_bin_has_are_unknown(recorded: Callable[[str], str]) -> None:
    """A new variant of a known chip does not count as an old one."""
    sysctl = parse_sysctl(recorded("macos/m4max-40/sysctl.txt"))
    machine = machine_from(sysctl, 36, ProfilerFacts(), "arm64")
    assert machine.profile is None
    assert machine.bandwidth is None
    assert "36 GPU cores" in machine.profile_note


def test_a_guest_of_a_mac_is_no_chip_of_a_profile() -> None:
    """Hosted runners name the host's chip, of which a guest has a part and no GPU."""
    sysctl = parse_sysctl(
        "machdep.cpu.brand_string: Apple M1 (Virtual)\nhw.memsize: 7516192768\n"
        "hw.physicalcpu_max: 3\nhw.logicalcpu_max: 3\nhw.nperflevels: 1\n"
        "hw.perflevel0.name: Standard\nhw.perflevel0.physicalcpu_max: 3\nkern.hv_vmm_present: 1\n"
    )
    machine = machine_from(sysctl, None, ProfilerFacts(), "arm64")
    assert machine.virtualised
    assert machine.profile is None
    assert machine.bandwidth is None
    assert machine.profile_note


@pytest.mark.parametrize(("stated", "limit"), [("", None), ("0", None), ("24576", 24576 << 20)])
def test_a_limit_of_the_gpu_that_a_user_set_is_known(stated: str, limit: int | None) -> None:
    """Zero is the system's own limit, which sysctl does not report."""
    sysctl = parse_sysctl(f"iogpu.wired_limit_mb: {stated}\nhw.memsize: 34359738368\n")
    machine = machine_from(sysctl, 10, ProfilerFacts(chip="Apple M4"), "arm64")
    assert machine.gpu_limit_bytes == limit
    memory = memory_of(Hardware(machine))
    assert memory is not None
    assert memory.usable_bytes == (limit or 32 << 30)


_TRANSLATED = (
    "machdep.cpu.brand_string: VirtualApple @ 2.50GHz\nhw.memsize: 51539607552\n"
    "hw.physicalcpu_max: 16\nsysctl.proc_translated: 1\niogpu.wired_limit_mb: 0\n"
)


@pytest.mark.parametrize("is_translated", [False, True])
@pytest.mark.parametrize(
    ("printed", "limit"),
    [("40200896512\n", 40200896512), ("0\n", None), ("execution error: -1728\n", None), ("", None)],
)
def test_metals_working_set_bounds_a_model(
    recorded: Callable[[str], str],
    printed: str,
    limit: int | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_translated: bool,
) -> None:
    """Metal reports it to a script, under Rosetta too; otherwise above 2/3 of memory is unsure."""
    sysctl = _TRANSLATED if is_translated else recorded("macos/m4max-40/sysctl.txt")
    outputs = {
        "/usr/sbin/sysctl": sysctl,
        "/usr/sbin/ioreg": recorded("macos/m4max-40/ioreg.txt"),
        "/usr/bin/osascript": printed,
    }
    monkeypatch.setattr(probe, "run", lambda words, **_: outputs.get(words[0]))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64" if is_translated else "arm64")
    memory = memory_of(Hardware(macos.read_machine()))
    assert memory is not None
    assert memory.gpu_limit_bytes == limit
    assert memory.is_certain is (limit is not None)
    of_processor = memory.holding(0)
    assert (of_processor.is_certain, of_processor.usable_bytes) == (True, memory.nbytes)
    assert memory.holding(99) == memory.holding(None) == memory


def test_system_profiler_alone_suffices(recorded: Callable[[str], str]) -> None:
    """All facts that matter can come from the fallback."""
    profiler = parse_system_profiler(recorded("macos/m2ultra-76/system_profiler.json"))
    machine = machine_from({}, None, profiler, "arm64")
    assert machine.profile is not None
    assert machine.profile.id == "m2ultra-76"
    assert machine.memory_bytes == 192 * 2**30
    assert machine.cores_by_level == (("Performance", 16), ("Efficiency", 8))


def test_serial_numbers_are_not_taken_over(recorded: Callable[[str], str]) -> None:
    """A machine's identifier is not copied."""
    facts = asdict(parse_system_profiler(recorded("macos/m5pro-16/system_profiler.json")))
    assert "XXXXXXXXXX" not in str(facts)
    assert "44444444" not in str(facts)


@pytest.mark.parametrize(
    ("text", "total", "levels"),
    [
        ("proc 8:4:4", 8, (("Performance", 4), ("Efficiency", 4))),
        ("proc 16:12:4:0", 16, _PE),
        ("proc 18:6:0:12", 18, (("Super", 6), ("Performance", 12))),
        ("proc 12:2:6:4", 12, (("Super", 2), ("Performance", 4), ("Efficiency", 6))),
        ("proc 18:6:0:11", None, ()),
        ("proc 8", None, ()),
        ("proc 8:4:4:0:0", None, ()),
        ("proc 0:0:0", None, ()),
        ("8 cores", None, ()),
        ("", None, ()),
    ],
)
def test_number_processors(
    text: str, total: int | None, levels: tuple[tuple[str, int], ...]
) -> None:
    """Both known shapes are understood, and parts that do not add up are nothing."""
    assert parse_number_processors(text) == (total, levels)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"SPHardwareDataType": [3]}', '{"SPHardwareDataType": {}}', "[" * 9999],
)
def test_a_useless_profile_gives_nothing(text: str) -> None:
    """JSON of another shape, or none, leaves every fact unknown."""
    assert parse_system_profiler(text) == ProfilerFacts()


def test_contradicting_gpu_entries_are_unknown() -> None:
    """Two accelerators with different counts are not added up or chosen from."""
    text = '"gpu-core-count" = 40\n"gpu-core-count" = 30\n'
    assert parse_gpu_cores(text) is None


def test_reports_that_lack_a_key_are_read_as_far_as_they_go(
    recorded: Callable[[str], str],
) -> None:
    """A report of displays alone names the chip, if it is Apple's."""
    facts = parse_system_profiler(recorded("macos/m3pro-14/system_profiler.json"))
    assert (facts.chip, facts.gpu_cores) == ("Apple M3 Pro", 14)
    other = {"SPDisplaysDataType": [{"sppci_model": "AMD Radeon Pro 5300M"}]}
    assert parse_system_profiler(json.dumps(other)).chip is None


def test_a_missing_level_makes_all_levels_unknown() -> None:
    """Half of the core types is no description of the processor."""
    values = {"hw.nperflevels": "2", "hw.perflevel0.physicalcpu_max": "4"}
    assert parse_cores_by_level(values) == ()


@given(st.text() | st.text(alphabet='hw.perflevel0123:= \n"gpu-core-count{}[]%'))
def test_parsers_never_raise(text: str) -> None:
    """Any text at all gives facts or unknowns."""
    machine = machine_from(
        parse_sysctl(text), parse_gpu_cores(text), parse_system_profiler(text), "arm64"
    )
    assert machine.profile is None
    parse_gpu_busy_percent(text)


@given(st.integers(0, 100))
def test_the_share_of_a_busy_gpu_is_read(percent: int) -> None:
    """Each whole percentage is read, and a negative one is unknown."""
    line = '"PerformanceStatistics" = {{"Device Utilization %"={},"recoveryCount"=0}}'
    assert parse_gpu_busy_percent(line.format(percent)) == percent
    assert parse_gpu_busy_percent(line.format(-1 - percent)) is None


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.just("proc 8:4:4"),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["SPHardwareDataType", "SPDisplaysDataType", "chip_type", "number_processors"]
                ),
                inner,
            )
        ),
    )
)
def test_any_json_shape_is_survived(document: object) -> None:
    """Known keys with values of unexpected kinds are unknowns."""
    import json

    facts = parse_system_profiler(json.dumps(document))
    assert facts.chip is None or isinstance(facts.chip, str)
