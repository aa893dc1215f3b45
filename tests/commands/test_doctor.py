import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.commands.console import render
from pytest_asperf.commands.examination import CacheReport, EngineReport, Examination, engine_report
from pytest_asperf.config.engines import Engine
from pytest_asperf.engine_process import Device, EngineBuild, EngineFacts, MetalFacts
from pytest_asperf.errors import printable
from pytest_asperf.hardware.conditions import Condition
from pytest_asperf.hardware.machine import Bandwidth, ContainerLimits, Gpu, Machine
from pytest_asperf.hardware.profiles import find_profile
from pytest_asperf.modelfiles.cache import CacheEntry
from pytest_asperf.report.sections import CheckLine, Failure, Section

FACTS = EngineFacts(
    engine="llama_cpp",
    library="llama-cpp-python",
    version="0.3.36",
    ggml_version="0.25.3",
    ggml_commit="0c1e570",
    library_path="/Users/me/.venv/lib/python3.12/site-packages/llama_cpp",
    library_sha256="90119d494cfaab07a999ec7431b750f60afcfc1e0c4f8379acf1fa2f1b68d8f6",
    devices=(Device("Metal", "Apple M2 Ultra", "GPU", 147 * 10**9),),
    default_threads=16,
)
INTACT = CacheEntry(
    Path("/c/models/a.gguf"),
    12_800_000,
    "ab" * 32,
    {"model": "asperf-target", "level": "Q8_0"},
    None,
)
BROKEN = replace(INTACT, path=Path("/c/models/b.gguf"), problem="it has 3 bytes where 5 were")

MAC = Examination(
    machine=Machine(
        os="macOS",
        arch="arm64",
        cpu_brand="Apple M2 Ultra",
        cores_by_level=(("Performance", 16), ("Efficiency", 8)),
        physical_cores=24,
        logical_cores=24,
        memory_bytes=192 * 2**30,
        gpus=(Gpu("Apple M2 Ultra", cores=76),),
        profile=find_profile("m2ultra-76"),
        bandwidth=Bandwidth(800.0, "advertised", 819.2),
    ),
    measured=None,
    engines=(EngineReport("llama_cpp", Path("/Users/me/.venv/bin/python"), FACTS),),
    cache=CacheReport(Path("/Users/me/Library/Caches/pytest-asperf"), 10**12, (INTACT, BROKEN)),
    conditions=(
        Condition("swap", "disturbing", "12.0 GB in use", "close large programs"),
        Condition("power mode", "disturbing", "low power mode on AC Power", "set it to automatic"),
        Condition("thermal level", "ok", "0 (nominal)"),
    ),
)
BARE_LINUX = Examination(
    machine=Machine(os="Linux", arch="x86_64", cpu_brand="AMD EPYC", logical_cores=2),
    measured=None,
    engines=(
        EngineReport(
            "llama_cpp",
            Path("/usr/bin/python3"),
            Failure("not installed in /usr/bin/python3", "pip install 'pytest-asperf[llama]'"),
        ),
    ),
    cache=CacheReport(Path("/home/somebody/.cache/pytest-asperf"), 10**8, ()),
    conditions=(Condition("power mode", "unknown", "the kernel shows no clock policy"),),
)


def check_of(examination: Examination, name: str) -> CheckLine:
    """Return the check of this name."""
    checks = [check for section in examination.sections for check in section.checks]
    return next(check for check in checks if check.name == name)


def lines(sections: Iterable[Section], columns: int | None = None) -> list[str]:
    """Return the sections as they are printed, without their colours."""
    return [line.plain for section in sections for line in render(section, columns)]


def test_disturbances_are_warnings_with_their_remedies() -> None:
    """A Mac that swaps in low-power mode can measure, and gets the remedies."""
    assert MAC.is_ready
    assert MAC.headline == "ready to measure, 3 warnings"
    text = "\n".join(lines(MAC.sections))
    for words in ("m2ultra-76", "24 physical, 24 logical (16 Performance + 8 Efficiency)"):
        assert words in text
    assert "192 GiB (206.2 GB for min_memory_gb)" in text
    assert "800 GB/s advertised" in text
    assert "  warn swap           12.0 GB in use\n" in text
    assert "do: close large programs" in text
    assert "  warn power mode     low power mode on AC Power\n" in text
    assert "do: set it to automatic" in text


@pytest.mark.parametrize(
    ("engine", "extra"), [("mlx_server", "mlx"), ("llama_cpp_server", "llama")]
)
def test_a_server_of_a_missing_library_is_not_installed(
    bare_python: Path, engine: Engine, extra: str
) -> None:
    """Its library is missing, which no engine's name would show."""
    found = engine_report(EngineBuild(engine, bare_python)).found
    assert isinstance(found, Failure)
    assert found.what == f"not installed in {bare_python}"
    assert f"pytest-asperf[{extra}]" in found.remedy


def test_a_missing_engine_makes_a_measurement_impossible() -> None:
    """Without an engine the answer is no, and the command that installs it is printed whole."""
    assert not BARE_LINUX.is_ready
    assert BARE_LINUX.headline == "cannot measure, 1 warning"
    text = lines(BARE_LINUX.sections, columns=120)
    assert "  FAIL engine  not installed in /usr/bin/python3" in text
    assert "               do: pip install 'pytest-asperf[llama]'" in text


def test_an_unusable_cache_makes_a_measurement_impossible() -> None:
    """An engine alone does not suffice: the model's file has to be made somewhere."""
    failure = Failure("/c cannot be written to: Read-only file system", "make it writable")
    sick = replace(MAC, cache=CacheReport(Path("/c"), None, (), failure))
    assert not sick.is_ready
    assert check_of(sick, "folder").state == "impossible"


def test_cached_files_are_listed_by_model_and_broken_ones_alone() -> None:
    """An intact part has one line; a broken one has place, reason and remedy."""
    assert check_of(MAC, "asperf-target").detail == "Q8_0 12.2 MiB"
    broken = check_of(MAC, "asperf-target:Q8_0")
    assert broken.state == "warning"
    assert "3 bytes" in broken.detail
    assert "/c/models/b.gguf" in broken.detail
    assert "asperf models verify --remove" in broken.remedy


def test_bandwidth_says_where_it_comes_from() -> None:
    """Advertised, measured, and neither are three different statements."""
    measured = Bandwidth(36.62, "measured", measured_on=dt.date(2026, 3, 1))
    both = check_of(replace(MAC, measured=measured), "bandwidth")
    assert both.detail == "800 GB/s advertised, 36.6 GB/s measured on 2026-03-01"
    neither = check_of(BARE_LINUX, "bandwidth")
    assert neither.state == "unknown"
    assert "asperf doctor --measure-bandwidth" in neither.remedy


@pytest.mark.parametrize(
    ("limits", "state", "detail"),
    [
        (ContainerLimits(), "ok", "no container or affinity limits"),
        (ContainerLimits(affinity=8), "ok", "no container or affinity limits"),
        (ContainerLimits(affinity=4), "ok", "4 of 8 cores"),
        (ContainerLimits(cpus=4.0, affinity=4), "ok", "processor time of 4 cores; 4 of 8 cores"),
        (
            ContainerLimits(cpus=1.5, affinity=8),
            "warning",
            "processor time of 1.5 cores: threads beyond",
        ),
        (ContainerLimits(memory_bytes=4 * 10**9), "ok", "3.73 GiB of memory"),
    ],
)
def test_a_quota_below_the_visible_cores_disturbs(
    limits: ContainerLimits, state: str, detail: str
) -> None:
    """The engine starts a thread per visible core, and a smaller quota halts them all."""
    machine = replace(MAC.machine, logical_cores=8, limits=limits)
    check = check_of(replace(MAC, machine=machine), "limits")
    assert check.state == state
    assert check.detail.startswith(detail)


def test_a_gpu_that_the_engine_cannot_use_is_a_warning() -> None:
    """A build for the processor alone would measure it in silence."""
    cpu_only = replace(FACTS, devices=(Device("CPU", "Apple M2 Ultra", "CPU", None),))
    report = EngineReport("llama_cpp", Path("/opt/my env/bin/python"), cpu_only)
    section = replace(MAC, engines=(report,)).sections[1]
    check = next(check for check in section.checks if check.name == "gpu")
    assert check.state == "warning"
    assert check.remedy.startswith("CMAKE_ARGS=-DGGML_METAL=on '/opt/my env/bin/python' -m pip")
    assert "gpu" not in {check.name for check in MAC.sections[1].checks}


@pytest.mark.parametrize(("has_matrix", "state"), [(True, "ok"), (False, "warning"), (None, "ok")])
def test_a_mac_s_gpu_is_shown_and_one_of_a_virtual_machine_warned_of(
    *, has_matrix: bool | None, state: str
) -> None:
    """Without the multiplication of matrices, the measured device is no Mac's GPU."""
    metal = MetalFacts(gpu="Apple M9", families=("Apple7",), simdgroup_matrix=has_matrix)
    report = EngineReport("llama_cpp", Path("/python"), replace(FACTS, metal=metal))
    section = replace(MAC, engines=(report,)).sections[1]
    check = next(check for check in section.checks if check.name == "metal")
    assert check.state == state
    assert check.detail.startswith("Apple M9, family Apple7")
    assert ("n_gpu_layers = 0" in check.remedy) is (has_matrix is False)


@pytest.mark.parametrize("examination", [MAC, BARE_LINUX])
def test_the_text_fits_sixty_columns(examination: Examination) -> None:
    """Lines are broken between words; only a word that is wider than its column sticks out."""
    for line in lines(examination.sections, columns=60):
        assert len(line) <= 60 or len(line.split(maxsplit=2)[-1].split()) == 1, line


def test_without_a_terminal_each_check_is_one_line() -> None:
    """Output that is piped into grep is not broken."""
    assert len(lines(MAC.sections)) == sum(
        1 + sum(1 + bool(check.remedy) for check in section.checks) for section in MAC.sections
    )


def test_foreign_words_are_shown_and_not_obeyed() -> None:
    """Markup in a device's name is text, and its control characters reach no terminal."""
    machine = replace(MAC.machine, cpu_brand="[red]EPYC[/red] :boom: \x1b[2J\x07\n")
    text = "\n".join(lines(replace(MAC, machine=machine).sections))
    assert "[red]EPYC[/red] :boom: \\x1b[2J\\x07" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert len(printable("x" * 10_000)) < 3_000


def test_json_holds_what_the_text_says_and_the_facts_behind_it() -> None:
    """Every finding and every remedy is there, and figures are numbers."""
    answer = json.loads(json.dumps(MAC.as_dict(), default=str))
    assert answer["ready"] is True
    written = json.dumps(answer["sections"])
    for section in MAC.sections:
        for check in section.checks:
            assert json.dumps(check.detail) in written
            assert json.dumps(check.remedy) in written
    assert answer["facts"]["machine"]["memory_bytes"] == 192 * 2**30
    assert answer["facts"]["engines"][0]["found"]["library_sha256"] == FACTS.library_sha256
    assert answer["facts"]["cache"]["files"][0]["path"] == "/c/models/a.gguf"
