"""Builds that were sabotaged on purpose are distinguished from the normal one, by their sabotage.

Compiles llama-cpp-python three times, for a quarter of an hour the first time.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.config.build_sources import parse_table
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import Build, ModelRef
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.gate.cells import GateCell, parse_gated
from pytest_asperf.gate.judge import GateLimits, judge_cells
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models

PATCH: Final = Path(__file__).parents[2] / "fixtures" / "builds" / "q4_k_mins_mixed_up.patch"
#: GGML_NATIVE=OFF by itself leaves AVX2, FMA, F16C and BMI2 on (`INS_ENB` in ggml/CMakeLists.txt).
PLAIN_CPU: Final = " ".join(
    f"-DGGML_{name}=OFF" for name in ("NATIVE", "AVX", "AVX2", "FMA", "F16C", "BMI2")
)
MAX_PPL_DELTA: Final = 0.005


def _release() -> str:
    """The version that is installed here, so that nothing but the sabotage differs."""
    return f"llama-cpp-python=={version('llama-cpp-python')}"


@dataclass(frozen=True)
class MeasurementContext:
    """The comparison of builds of this release with the normal one."""

    runner: MeasurementRunner

    def judge(self, sabotaged: Build, address: str, workload: str) -> Verdict:
        """Compare a build with the normal one, on the shipped target."""
        (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-target")
        budget = Budget(tolerance=0.1, max_pairs=60, max_seconds=300, seed=1)
        cell = GateCell(
            ModelRef(spec.on("llama_cpp"), address), parse_gated(workload, where="test")
        )
        builds = _build("normal", _release()), sabotaged
        (result,) = judge_cells(self.runner, [cell], builds, GateLimits(budget, MAX_PPL_DELTA))
        return result.unbroken()


def _build(name: str, requirement: str, **keys: Any) -> Build:
    keys["requirements"] = [requirement]
    return Build(name, parse_table(keys, Path.cwd(), where="tests/releases"))


@pytest.fixture(scope="module")
def measurement() -> Iterator[MeasurementContext]:
    """A lab whose cache is the user's, so that a compilation of minutes happens once."""
    runner = MeasurementRunner(
        EngineBuild("llama_cpp", Path(sys.executable)),
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(chunks=16),
        lock_path=machine_lock_path(),
        notify=Notify(),
    )
    with runner:
        yield MeasurementContext(runner)


@pytest.fixture(scope="module")
def plain_cpu() -> Build:
    """The release compiled for any x86-64 or Arm of the last twenty years."""
    return _build("plain CPU", _release(), env={"CMAKE_ARGS": PLAIN_CPU})


@pytest.fixture(scope="module")
def broken_kernel(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The release with a patch in its vendored sources, as an sdist of its own."""
    folder = tmp_path_factory.mktemp("patched")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=llama-cpp-python"]
    subprocess.run([*command, "--dest", str(folder), _release()], check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    return _build("broken kernel", str(patched(sdist, folder / "repacked")))


def patched(sdist: Path, folder: Path) -> Path:
    """Write an sdist anew with the patch applied; from the same bytes, the same bytes."""
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        archive.extractall(folder, filter="data")
    top = members[0].name.partition("/")[0]
    git = shutil.which("git")
    assert git is not None, "git applies the patch"
    subprocess.run([git, "apply", str(PATCH)], cwd=folder / top, check=True)
    target = folder / sdist.name
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for member in members:
            path = folder / member.name
            member.size = path.lstat().st_size if member.isreg() else 0
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return target


@pytest.mark.parametrize("workload", ["pp512", "tg64"])
def test_a_build_without_vector_instructions_fails_on_speed(
    measurement: MeasurementContext, plain_cpu: Build, workload: str
) -> None:
    """It is slower, beyond the tolerance, and the gate shows it."""
    assert measurement.judge(plain_cpu, "Q4_K_M", workload).outcome == "FAIL"


@pytest.mark.parametrize("level", ["F16", "Q4_K_M"])
def test_a_build_without_vector_instructions_passes_on_quality(
    measurement: MeasurementContext, plain_cpu: Build, level: str
) -> None:
    """It computes the same."""
    assert measurement.judge(plain_cpu, level, "ppl").outcome == "PASS"


def test_a_build_with_a_broken_kernel_fails_on_quality(
    measurement: MeasurementContext, broken_kernel: Build
) -> None:
    """Offsets of Q4_K that belong to other rows show in PPL."""
    assert measurement.judge(broken_kernel, "Q4_K_M", "ppl").outcome == "FAIL"


def test_a_broken_kernel_of_one_type_passes_on_another(
    measurement: MeasurementContext, broken_kernel: Build
) -> None:
    """F16 has nothing of it."""
    assert measurement.judge(broken_kernel, "F16", "ppl").outcome == "PASS"


@pytest.mark.parametrize("workload", ["pp512", "tg64"])
def test_a_build_with_a_broken_kernel_fails_where_it_is_timed(
    measurement: MeasurementContext, broken_kernel: Build, workload: str
) -> None:
    """It is as fast, and its timed runs leave other logits: a mere timing misses it."""
    verdict = measurement.judge(broken_kernel, "Q4_K_M", workload)
    time, most = verdict.figures[0].estimate, verdict.figures[0].at_most
    assert time.high is not None
    assert most is not None
    assert time.high <= most
    assert [finding.guard for finding in verdict.guards] == [Guard.TIMED_WORK]
    assert verdict.outcome == "FAIL"
