"""A Mac's GPU, read from llama.cpp's log in the words of each version."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.engine_process import MetalFacts
from pytest_asperf.worker.printed.engine_log import context_facts
from pytest_asperf.worker.printed.metal_log import metal_facts

_LOGS: Final = Path(__file__).parents[2] / "fixtures" / "metal"


def _lines(name: str) -> list[str]:
    return (_LOGS / f"{name}.log").read_text().splitlines()


def _metal(lines: list[str]) -> MetalFacts:
    found = MetalFacts.parse(metal_facts(lines))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "m4pro",
            MetalFacts(
                gpu="Apple M4 Pro",
                families=("Apple9", "Metal4"),
                simdgroup_matrix=True,
                tensor=False,
                working_set_bytes=40_200_900_000,
            ),
        ),
        (
            "paravirtual",
            MetalFacts(
                gpu="Apple Paravirtual device",
                families=("Apple5",),
                simdgroup_matrix=False,
                tensor=False,
                working_set_bytes=5_010_800_000,
            ),
        ),
        (
            "m4_prefixed",
            MetalFacts(
                gpu="Apple M4",
                families=("Apple9", "Common3", "Metal3"),
                simdgroup_matrix=True,
                working_set_bytes=11_453_250_000,
            ),
        ),
        (
            "radeon",
            MetalFacts(
                gpu="AMD Radeon Pro 570",
                families=("Common3", "Metal3"),
                simdgroup_matrix=False,
                working_set_bytes=4_294_970_000,
                over_working_set=True,
            ),
        ),
    ],
)
def test_each_version_s_lines_are_read(name: str, found: MetalFacts) -> None:
    """The device's lines of 2026, those of a context before, with a program's prefix or without."""
    assert _metal(_lines(name)) == found


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_lines_means_nothing(random: Any) -> None:
    """Facts that come in another order are equal, but for that of the families."""
    lines = _lines("m4pro")
    expected = metal_facts(lines)
    random.shuffle(lines)
    found = metal_facts(lines)
    assert sorted(found.pop("families")) == sorted(expected.pop("families"))
    assert found == expected


def test_virtual_devices_are_one_gpu() -> None:
    """The name is the GPU's, and its families are counted once."""
    first, second = (
        [line.replace("MTL0 (Apple M4 Pro)", f"MTL{n} (Apple M4 Pro (dev p0/v{n}))") for line in of]
        for n, of in enumerate([_lines("m4pro")] * 2)
    )
    assert _metal([*first, *second]) == _metal(_lines("m4pro"))


@pytest.mark.parametrize(
    "line",
    [
        "simdgroup matrix mul. = false",
        "The model said: has tensor = true",
        "ggml_metal_device_init: simdgroup matrix mul. = perhaps",
        "ggml_metal_device_init: recommendedMaxWorkingSetSize  = inf MB",
        "ggml_metal_device_init: GPU family: MTL",
    ],
)
def test_text_that_is_no_fact(line: str) -> None:
    """A line of generated text, and a value of no known form, show nothing about a GPU."""
    assert metal_facts([line]) == {}


@given(st.lists(st.text(alphabet="ggml_metal: =()MTL0GPU name\n", max_size=60)))
def test_any_text_is_read(lines: list[str]) -> None:
    """Any text at all gives facts that can be parsed, or none."""
    MetalFacts.parse(metal_facts(lines))


def _guard(name: str) -> GuardFinding | None:
    return _metal(_lines(name)).guard_finding


def test_a_gpu_that_cannot_multiply_matrices_is_named() -> None:
    """The device of a virtual machine and an Intel Mac's trip the guard, Apple silicon does not."""
    virtual, intel = _guard("paravirtual"), _guard("radeon")
    assert virtual is not None
    assert virtual.guard == "gpu-limits"
    assert "Apple Paravirtual device: it has no simdgroup matrix" in virtual.found
    assert "working set" not in virtual.found
    assert intel is not None
    assert "its working set of 4 GiB" in intel.found
    assert _guard("m4pro") is None
    assert _guard("m4_prefixed") is None


def test_a_context_s_facts_have_the_gpu() -> None:
    """They have it if the log names one, and nothing of it otherwise."""
    assert context_facts(_lines("m4pro"), {})["metal"]["gpu"] == "Apple M4 Pro"
    assert "metal" not in context_facts(["load_tensors: CPU_Mapped model buffer size = 1 MiB"], {})


_KEPT: Final = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
from pytest_asperf.worker.llama_cpp_compat import LibraryLog
log = LibraryLog()
for line in pathlib.Path(sys.argv[2]).read_text().splitlines(keepends=True):
    log.callback(2, line.encode(), None)
log.clear()
log.callback(2, b"llama_context: n_ctx = 512\\n", None)
print("\\n".join(log.lines))
"""


@pytest.mark.live
def test_the_library_s_log_keeps_the_lines_of_the_device() -> None:
    """They are printed before the first load, after which the log of each load begins anew."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", _KEPT, root, _LOGS / "m4pro.log"],
        capture_output=True,
        text=True,
        check=True,
    )
    kept = run.stdout.splitlines()
    assert _metal(kept) == _metal(_lines("m4pro"))
    assert kept[-1] == "llama_context: n_ctx = 512"
    assert not any("loaded in" in line for line in kept)
