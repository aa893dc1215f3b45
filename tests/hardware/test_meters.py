"""The counters of each source, and the reasons for rails without a figure, on saved output."""

import io
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.meters import choose
from pytest_asperf.hardware.meters.choose import apple_meter, nvml_meter, rapl_meter
from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail, joined
from pytest_asperf.hardware.meters.powermetrics import (
    NotASampleError,
    RunningSum,
    documents,
    parse_sample,
    powermetrics_meter,
)

Tree = Callable[[Mapping[str, str]], Path]

_PLISTS = Path(__file__).parents[2] / "fixtures" / "powermetrics"
SAMPLE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>is_delta</key><true/>
<key>elapsed_ns</key><integer>{elapsed_ns}</integer>
<key>hw_model</key><string>Mac16,5</string>
<key>processor</key><dict>
<key>cpu_energy</key><integer>{cpu_mj}</integer>
<key>gpu_energy</key><integer>276</integer>
<key>ane_energy</key><integer>0</integer>
</dict>
<key>thermal_pressure</key><string>Nominal</string>
</dict></plist>
"""


class NvmlError(Exception):
    """The exception of the binding."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Two cards, of which the second is too old for an energy counter."""

    def energy(handle: int) -> int:
        if handle:
            raise NvmlError
        return 5_000_000

    binding = SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=int,
        nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetPowerUsage=lambda _: 126_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return binding


def test_nvidia_cards(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joules and watts of each card that CUDA sees; a card without a counter is named."""
    meter = nvml_meter()
    (counter,) = meter.counters
    assert (counter.name, counter.rail, counter.read_j()) == ("GPU 0 (NVML)", "gpu", 5000.0)
    assert counter.read_w is not None
    assert counter.read_w() == 126.0
    assert "card 1 has no energy counter" in str(*meter.missing)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert nvml_meter().counters == ()

    def no_power(_: int) -> int:
        raise NvmlError

    nvml.nvmlDeviceGetPowerUsage = no_power
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert nvml_meter().counters[0].read_w is None


def test_without_nvidia_there_is_a_reason(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No binding, no driver and no card are three reasons; the first has a remedy."""
    nvml.nvmlDeviceGetCount = lambda: 0
    assert "shows no NVIDIA card" in str(*nvml_meter().missing)
    monkeypatch.setattr("pytest_asperf.hardware.nvidia.open_nvml", lambda: None)
    monkeypatch.setattr("pytest_asperf.hardware.meters.choose.find_spec", lambda _: None)
    assert "pip install 'pytest-asperf[energy]'" in str(*nvml_meter().missing)
    monkeypatch.setattr("pytest_asperf.hardware.meters.choose.find_spec", lambda _: nvml)
    assert "no NVIDIA driver answers" in str(*nvml_meter().missing)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a function that writes powercap's files."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / "sys/class/powercap" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_rapl_domains(tree: Tree) -> None:
    """Packages, cores and memory; a domain that contains or repeats a package is left out."""
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    root = tree(
        {f"{folder}/name": f"{name}\n" for folder, name in names.items()}
        | {f"{folder}/energy_uj": "262000000\n" for folder in names}
        | {"intel-rapl:0/max_energy_range_uj": "262143328850\n"}
    )
    meter = rapl_meter(root)
    found = {(c.name, c.rail, c.wraps_at_j) for c in meter.counters}
    assert found == {
        ("package-0 (RAPL)", "package", 262143.328850),
        ("core (RAPL)", "cpu", None),
        ("dram (RAPL)", "dram", None),
    }
    assert {c.read_j() for c in meter.counters} == {262.0}
    # The package contains its cores.
    assert [c.rail for c in joined([meter]).counters] == ["package", "dram"]
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    with pytest.raises(HardwareError, match="no longer be read"):
        meter.counters[0].read_j()


def test_rapl_that_only_root_may_read(tree: Tree) -> None:
    """The remedy is the command; a virtual machine has none."""
    (missing,) = rapl_meter(tree({"intel-rapl:0/name": "package-0\n"})).missing
    assert "only root" in missing.reason
    assert "sudo chmod" in missing.remedy
    (missing,) = rapl_meter(Path("/no/such/root")).missing
    assert "virtual machines" in missing.reason


def _zeus(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    names = ("cpu_total_mj", "gpu_mj", "gpu_sram_mj", "ane_mj", "dram_mj")
    metrics = SimpleNamespace(**(dict.fromkeys(names) | fields))
    monitor = SimpleNamespace(get_cumulative_energy=lambda: metrics)
    package = SimpleNamespace(AppleEnergyMonitor=lambda: monitor)
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", package)
    monkeypatch.setattr(choose, "version", lambda _: "1.1.0")


def test_apple_silicon_without_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rails that the chip publishes have a counter, none missing. The GPU's memory is its own."""
    _zeus(monkeypatch, cpu_total_mj=3049, gpu_mj=276, gpu_sram_mj=4, ane_mj=0)
    meter = apple_meter("Apple M4 Max")
    assert [(c.name, c.rail) for c in meter.counters] == [
        ("CPU (IOReport)", "cpu"),
        ("GPU (IOReport)", "gpu"),
        ("GPU_SRAM (IOReport)", "gpu"),
        ("ANE (IOReport)", "ane"),
    ]
    assert meter.counters[0].read_j() == 3.049
    assert [m.rail for m in meter.missing] == ["dram"]


def test_two_dies_have_no_cpu_figure_without_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """This version counts the last die, so that nothing is better than half."""
    _zeus(monkeypatch, cpu_total_mj=3049, gpu_mj=276)
    meter = apple_meter("Apple M2 Ultra")
    assert [c.rail for c in meter.counters] == ["gpu"]
    assert "one of this chip's two dies" in meter.missing[0].reason
    monkeypatch.setattr(choose, "version", lambda _: "1.2.0")
    assert [c.rail for c in apple_meter("Apple M2 Ultra").counters] == ["cpu", "gpu"]


def test_a_mac_takes_powermetrics_where_it_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """IOReport if it has the processor, otherwise powermetrics with sudo, otherwise reasons."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("pytest_asperf.hardware.probe.run", lambda _: "Apple M2 Ultra\n")
    with_sudo = Meter((Counter("CPU (powermetrics)", "cpu", float),))
    monkeypatch.setattr(choose, "powermetrics_meter", lambda: with_sudo)
    _zeus(monkeypatch, cpu_total_mj=3049, gpu_mj=276)
    assert choose.open_meters().counters == with_sudo.counters
    monkeypatch.setattr("pytest_asperf.hardware.probe.run", lambda _: "Apple M4 Max\n")
    assert choose.open_meters().counters[0].name == "CPU (IOReport)"
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", None)
    refused = Meter(missing=(MissingRail("cpu", "powermetrics needs sudo", "run `sudo -v` first"),))
    monkeypatch.setattr(choose, "powermetrics_meter", lambda: refused)
    with pytest.raises(HardwareError) as error:
        choose.open_meters()
    assert "zeus-apple-silicon is not installed" in error.value.what
    assert "sudo -v" in error.value.remedy


def test_the_doctor_says_what_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters and rails without one, with the remedy; none at all is unknown, with reason."""
    missing = MissingRail("package", "only root may read package-0", "sudo chmod")
    gpu = Meter((Counter("GPU 0 (NVML)", "gpu", float),))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(choose, "nvml_meter", lambda: gpu)
    monkeypatch.setattr(choose, "rapl_meter", lambda: Meter(missing=(missing,)))
    found = choose.energy_condition()
    assert (found.state, found.remedy) == ("ok", "sudo chmod")
    assert found.detail == f"GPU 0 (NVML); not measured: package: {missing.reason}"
    monkeypatch.setattr(choose, "nvml_meter", Meter)
    found = choose.energy_condition()
    assert (found.state, found.remedy) == ("unknown", "sudo chmod")


def test_powermetrics_adds_up_energies_of_unequal_samples() -> None:
    """3,049 mJ in 1.02 s and 300 mJ in 0.1 s are 3.349 J."""
    texts = (
        SAMPLE.format(elapsed_ns=1_023_685_416, cpu_mj=3049),
        SAMPLE.format(elapsed_ns=107_900_000, cpu_mj=300),
    )
    stream = b"\0".join(text.encode() for text in texts)
    running = RunningSum(io.BytesIO(stream))
    deadline = time.monotonic() + 60
    while running.joules.get("cpu", 0.0) < 3.3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert running.joules == pytest.approx({"cpu": 3.349, "gpu": 0.552, "ane": 0.0})
    running._thread.join()
    with pytest.raises(HardwareError, match="has ended"):
        running.read_j("cpu")


def test_a_document_that_is_no_sample_is_refused() -> None:
    """Another plist, a negative energy, and no XML at all."""
    sample = parse_sample(SAMPLE.format(elapsed_ns=10**9, cpu_mj=1).encode())
    assert (sample.thermal, sample.machine) == ("Nominal", "Mac16,5")
    bad = SAMPLE.format(elapsed_ns=10**9, cpu_mj=-1).encode()
    for document in (bad, b"", b"<plist><array/></plist>"):
        with pytest.raises(NotASampleError):
            parse_sample(document)
    assert list(documents(io.BytesIO(b" \0 a \0"))) == [b"a"]


@pytest.mark.parametrize(
    ("name", "energies_mj"),
    [
        ("m4pro_gpu", [{"gpu": 84.0}, {"gpu": 42.0}]),
        ("m1_powers", [{"cpu": 61.0, "gpu": 19.0, "ane": 0.0}]),
        ("m4_all", [{"cpu": 45.0, "gpu": 5.0, "ane": 0.0}]),
    ],
)
def test_rails_of_each_form_are_found(name: str, energies_mj: list[dict[str, float]]) -> None:
    """The GPU's sampler has its energy under a key of its own; a power is one of the interval."""
    with (_PLISTS / f"{name}.plist").open("rb") as file:
        found = [parse_sample(document or b"").energy_mj for document in documents(file)]
    assert found == energies_mj


def test_a_sample_without_a_rail_is_refused() -> None:
    """`--samplers battery` measures no power."""
    with (_PLISTS / "m4pro_battery.plist").open("rb") as file:
        for document in documents(file):
            with pytest.raises(NotASampleError, match="its samplers measure no power"):
                parse_sample(document or b"")


@pytest.mark.skipif(Path("/usr/bin/powermetrics").exists(), reason="powermetrics is installed")
def test_without_powermetrics_there_is_a_reason() -> None:
    """Neither leave nor the program: the rail is missing, and nothing is raised."""
    (missing,) = powermetrics_meter().missing
    assert "powermetrics" in missing.reason


def test_the_cards_of_this_machine_count() -> None:
    """A real counter rises within a second, idle or not."""
    meter = nvml_meter()
    if not meter.counters:
        pytest.skip("; ".join(map(str, meter.missing)))
    first = [counter.read_j() for counter in meter.counters]
    time.sleep(0.5)
    assert all(c.read_j() > j for c, j in zip(meter.counters, first, strict=True))
    meter.close()
