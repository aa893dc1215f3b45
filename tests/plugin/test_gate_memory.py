"""A candidate that needs more memory is a FAIL, for any speed."""

import pytest

from pytest_asperf.engine_process import EngineBuild
from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

GATE = """
@pytest.mark.model("asperf-draft", threads=1)
def test_gate(gate):
    assert_no_regression(gate("memory"), tolerance="5%")
"""


def test_equal_builds_take_the_same(live: Project) -> None:
    """The engine counts the same bytes, and its process has nearly the same."""
    live.test(GATE)
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate memory * → *"])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("forgets_to_free", "RSS"),
        ("larger_batches", "compute"),
        ("leaks_a_little", "RSS left by 24 requests: * MiB"),
        ("leaks_when_decoding", "RSS left by 24 requests: * MiB"),
    ],
)
def test_growth_fails_and_is_named(live: Project, how: str, what: str) -> None:
    """Buffers of the engine's own count, and the memory of its process alone."""
    live.test(GATE)
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines([f"✗ *gate memory *{what}*"])


def test_a_larger_type_of_cache_fails(live: Project) -> None:
    """An unquantized cache needs twice as much."""
    live.test(GATE.replace("asperf-draft", "asperf-target").replace("memory", "memory@d1024"))
    q8_0 = "current,type_k=q8_0,type_v=q8_0"
    result = live.run(f"--asperf-baseline={q8_0}", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✗ *gate memory@d1024 *KV cache: 4.25 MiB → 8 MiB*"])


@pytest.mark.parametrize("how", ["keeps_f16", "keeps_f16_values"])
def test_a_cache_that_is_not_the_one_asked_for_is_invalid(live: Project, how: str) -> None:
    """A build that keeps F16 instead of the requested q8_0 cannot be compared, not in part."""
    live.test(GATE.replace("threads=1", 'threads=1, type_k="q8_0", type_v="q8_0"'))
    candidate = write_sabotaged(live.path, how)
    result = live.run(f"--asperf-candidate={candidate}", "-v")
    result.stdout.fnmatch_lines(["*type_[kv]*q8_0*f16*", "*1 INVALID*"])


def test_batches_that_are_not_those_asked_for_are_invalid(live: Project) -> None:
    """Smaller ones need less memory and have the same logits, so no comparison shows them."""
    live.test(GATE.replace("threads=1", "threads=1, n_ubatch=256"))
    candidate = write_sabotaged(live.path, "smaller_batches")
    result = live.run(f"--asperf-candidate={candidate}", "-v")
    result.stdout.fnmatch_lines(["*n_ubatch*256*64*", "*1 INVALID*"])


def test_mlx(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001
    """MLX counts its allocations too."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test("def test_gate(gate):\n    assert_no_regression(gate('memory'))\n")
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate memory *"])
