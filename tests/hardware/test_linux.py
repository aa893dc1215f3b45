from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.hardware import linux
from pytest_asperf.hardware.machine import ContainerLimits, Machine

Tree = Callable[[Mapping[str, str]], Path]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("intel", linux.CpuFacts("13th Gen Intel(R) Core(TM) i7-13700", None, 2, False)),  # noqa: FBT003
        ("amd-guest", linux.CpuFacts("AMD EPYC 7B13", None, 1, True)),  # noqa: FBT003
        ("arm", linux.CpuFacts(None, None, 4, None)),
    ],
)
def test_cpuinfo(recorded: Callable[[str], str], name: str, facts: linux.CpuFacts) -> None:
    """x86 shows model and hypervisor; Arm shows neither."""
    assert linux.parse_cpuinfo(recorded(f"linux/cpuinfo-{name}.txt")) == facts


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("arm", linux.CpuFacts("Neoverse-N1", None, 4, True)),  # noqa: FBT003
        ("nested", linux.CpuFacts("13th Gen Intel(R) Core(TM) i7-13700", 16, 24, None)),
        ("biglittle", linux.CpuFacts("Cortex-A55 + Cortex-A76", None, 8, None)),
    ],
)
def test_lscpu(recorded: Callable[[str], str], name: str, facts: linux.CpuFacts) -> None:
    """Flat and nested fields are read, and every kind of core has its name."""
    assert linux.parse_lscpu(recorded(f"linux/lscpu-{name}.json")) == facts


def test_meminfo(recorded: Callable[[str], str]) -> None:
    """Sizes come in bytes, and plain counts are left out."""
    meminfo = linux.parse_meminfo(recorded("linux/meminfo.txt"))
    assert meminfo["MemTotal"] == 65536000 * 1024
    assert meminfo["Active(anon)"] == 2034112 * 1024
    assert "HugePages_Total" not in meminfo


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("", ()),
        ("3-", ()),
        ("0-99999", ()),
        ("a", ()),
    ],
)
def test_cpu_list(text: str, cpus: tuple[int, ...]) -> None:
    """Ranges are expanded, and malformed or absurd text is nothing."""
    assert linux.parse_cpu_list(text) == cpus


@given(st.text() | st.text(alphabet='0123456789-,:/ KMG"{}[]lscpufield\n'))
def test_parsers_never_raise(text: str) -> None:
    """Any text at all gives facts or unknowns."""
    assert isinstance(linux.parse_cpuinfo(text), linux.CpuFacts)
    assert isinstance(linux.parse_lscpu(text), linux.CpuFacts)
    assert all(size >= 0 for size in linux.parse_meminfo(text).values())
    assert all(cpu >= 0 for cpu in linux.parse_cpu_list(text))
    for parse in (linux.parse_size, linux.parse_cpu_max):
        parse(text)
    assert all(path.startswith("/") for path in linux.parse_cgroup_paths(text).values())


@given(st.integers(0, 10**12 - 1), st.sampled_from(["", "K", "M", "G"]))
def test_sizes_are_in_binary_units(count: int, unit: str) -> None:
    """Each unit is 1,024 of the one before it; a sign or another unit makes the size unknown."""
    size = linux.parse_size(f"{count}{unit}\n")
    assert size == count * 1024 ** ["", "K", "M", "G"].index(unit)
    assert linux.parse_size(f"-{count}{unit}") is None
    assert linux.parse_size(f"{count}{unit}B") is None


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_quota_is_a_share_of_its_period(quota: int, period: int) -> None:
    """A container may use quota / period processors; without a quota the limit is unknown."""
    assert linux.parse_cpu_max(f"{quota} {period}\n") == pytest.approx(quota / period)
    assert linux.parse_cpu_max(f"max {period}\n") is None
    assert linux.parse_cpu_max(f"-{quota} {period}\n") is None


def test_a_hybrid_processor_has_levels(system_tree: Tree) -> None:
    """Hyperthreads of one core count once, and the two kinds are distinguished."""
    cpus = "sys/devices/system/cpu"
    root = system_tree(
        {
            "sys/devices/cpu_core/cpus": "0-3",
            "sys/devices/cpu_atom/cpus": "4-5",
            **{
                f"{cpus}/cpu{n}/topology/core_cpus_list": "0-1" if n < 2 else "2-3"
                for n in range(4)
            },
            f"{cpus}/cpu4/topology/thread_siblings_list": "4",
            f"{cpus}/cpu5/topology/thread_siblings_list": "5",
        }
    )
    assert linux.read_cores_by_level(root) == (("Performance", 2), ("Efficiency", 2))
    assert linux.count_physical_cores(range(6), root) == 4
    assert linux.count_physical_cores(range(7), root) is None


def test_last_level_caches_are_added_up_once_each(system_tree: Tree) -> None:
    """Two groups of cores with 32 MiB each have 64 MiB, however many cores share them."""
    files: dict[str, str] = {}
    for cpu in range(4):
        cache = f"sys/devices/system/cpu/cpu{cpu}/cache"
        files |= {f"{cache}/index0/level": "1", f"{cache}/index0/type": "Data"}
        files |= {f"{cache}/index0/size": "32K", f"{cache}/index0/shared_cpu_list": str(cpu)}
        files |= {f"{cache}/index3/level": "3", f"{cache}/index3/type": "Unified"}
        files |= {f"{cache}/index3/size": "32768K"}
        files |= {f"{cache}/index3/shared_cpu_list": "0-1" if cpu < 2 else "2-3"}
    assert linux.read_cache_bytes(range(4), system_tree(files)) == 64 * 2**20


def test_version_2_limits_hold_from_any_level(system_tree: Tree) -> None:
    """The tightest limit of the group and its parents counts."""
    root = system_tree(
        {
            "proc/self/cgroup": "0::/outer/inner",
            "sys/fs/cgroup/outer/cpu.max": "150000 100000",
            "sys/fs/cgroup/outer/memory.max": "max",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000",
            "sys/fs/cgroup/outer/inner/memory.max": "2147483648",
        }
    )
    assert linux.read_limits(root) == ContainerLimits(cpus=1.5, memory_bytes=2**31)


def test_version_1_limits(system_tree: Tree) -> None:
    """Quota by period is CPUs, and the largest number means no limit."""
    root = system_tree(
        {
            "proc/self/cgroup": "4:memory:/box\n3:cpu,cpuacct:/box",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "9223372036854771712",
        }
    )
    assert linux.read_limits(root) == ContainerLimits(cpus=2.0, memory_bytes=None)


def test_a_cgroup_path_does_not_lead_out_of_its_tree(system_tree: Tree) -> None:
    """A path with dots, as nested containers show it, gives no limit."""
    root = system_tree({"proc/self/cgroup": "0::/../box", "sys/fs/box/cpu.max": "100000 100000"})
    assert linux.read_limits(root) == ContainerLimits()


@pytest.mark.parametrize(
    ("limits", "usable"),
    [
        (ContainerLimits(), 64),
        (ContainerLimits(cpus=1.5, affinity=64), 1),
        (ContainerLimits(cpus=0.5), 1),
        (ContainerLimits(affinity=4), 4),
    ],
)
def test_usable_cores_follow_the_limits(limits: ContainerLimits, usable: int) -> None:
    """The tightest of machine, quota and affinity counts, and one core is the least."""
    machine = Machine(os="Linux", arch="x86_64", cpu_brand=None, logical_cores=64, limits=limits)
    assert machine.usable_cores == usable
