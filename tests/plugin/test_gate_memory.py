"""A candidate that needs more memory is a FAIL, for any speed."""

from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineBuild
from tests.modelfiles.gguf_files import write_windowed
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
        ("peaks_later", "peak RSS: * MiB"),
        ("leaks_by_context", "RSS left by 24 requests: * MiB"),
        ("leaks_a_little", "RSS left by 24 requests: * MiB"),
        ("leaks_when_decoding", "RSS left by 24 requests: * MiB"),
        ("leaks_after_long_prompts", "RSS left by 24 requests: * MiB"),
        ("leaks_by_token", "RSS left by 24 requests: * MiB"),
    ],
)
def test_growth_fails_and_is_named(live: Project, how: str, what: str) -> None:
    """Buffers of the engine's own count, and the memory of its process alone."""
    live.test(GATE)
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines([f"✗ *gate memory *{what}*"])


def test_windows_that_are_held_whole_fail(live: Project, draft_gguf: Path) -> None:
    """Layers that attend to 64 tokens need a cache for them, and not for the whole context."""
    write_windowed(draft_gguf, live.path / "windowed.gguf")
    live.test(GATE.replace("asperf-draft", "./windowed.gguf").replace("memory", "memory@d2000"))
    baseline = write_sabotaged(live.path, "keeps_windows")
    result = live.run(f"--asperf-baseline={baseline}", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✗ *gate memory@d2000 *KV cache: 11 MiB → 16 MiB*"])


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


@pytest.fixture
def mlx_gate(live: Project, mlx: EngineBuild) -> Project:  # noqa: ARG001
    """A gate of the memory on MLX."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test("def test_gate(gate):\n    assert_no_regression(gate('memory'))\n")
    return live


def test_mlx(mlx_gate: Project) -> None:
    """MLX counts its allocations too."""
    result = mlx_gate.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate memory *"])


@pytest.mark.parametrize(
    "how", ["leaks_when_decoding", "leaks_after_long_prompts", "leaks_by_token"]
)
def test_growth_in_freed_memory_fails(mlx_gate: Project, how: str) -> None:
    """Memory that requests leave behind first fills what the longest prompt freed."""
    candidate = write_sabotaged(mlx_gate.path, how, "mlx")
    result = mlx_gate.run(f"--asperf-candidate={candidate}", "-v")
    result.stdout.fnmatch_lines(["✗ *gate memory *RSS left by 24 requests: * MiB*"])


@pytest.mark.usefixtures("mlx")
@pytest.mark.parametrize(
    ("how", "held"), [("keeps_floats", "f32"), ("quantizes_one_layer", "8bit and f32")]
)
def test_a_cache_of_mlx_has_the_type_of_its_numbers(live: Project, how: str, held: str) -> None:
    """A build that keeps floats where 8 bits were requested is INVALID in any measurement."""
    live.config(engine="mlx", call_timeout_s=120)
    live.test(
        "@pytest.mark.model('asperf-draft:F32', kv_bits=8)\n"
        "def test_rate(throughput):\n    assert throughput('tg8') >= '1 tok/s'\n"
    )
    result = live.run(f"--asperf-python={write_sabotaged(live.path, how, 'mlx')}")
    result.stdout.fnmatch_lines([f"*type_k 8bit was requested and {held} ran*", "*1 INVALID*"])
