"""Quantizations that are their baseline, and baselines that are no model, on the real engines."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from numpy.typing import NDArray

from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.conftest import Draft
from tests.plugin.conftest import Project

pytestmark = pytest.mark.usefixtures("short_chunks")

#: Every assertion that compares a quantization with its baseline.
CLAIMS = """
@pytest.mark.quant_ladder("{rung}")
def test_each(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.quant_ladder("{rung}", "pub:Q8_0")
def test_monotonic(ladder):
    assert_monotonic(ladder, "kld")

@pytest.mark.quant_ladder("{rung}", "pub:Q8_0")
def test_pareto(ladder):
    assert_pareto_optimal(ladder, "{rung}", objectives=("size", "ppl"))

@pytest.mark.quant_ladder("{rung}", "pub:Q8_0")
def test_degrades(ladder):
    assert ladder["{rung}"].kld / ladder["pub:Q8_0"].kld < 1

@pytest.mark.quant_ladder("{rung}", "pub:Q8_0")
def test_equivalent(ladder):
    assert 0.5 <= ladder["{rung}"].ppl / ladder["pub:Q8_0"].ppl <= 2
"""
N_CLAIMS = 5


@pytest.fixture
def published(live: Project, draft: Draft) -> Project:
    """The shipped draft as published files, `pub`, with further declared ones."""
    for level in ("F16", "Q8_0"):
        shutil.copy(draft(level), live.path / f"{level}.gguf")
    return live


def declare(project: Project, table: str, *, base: str = "F16.gguf", chunks: int = 2) -> None:
    """Configure the published files and further models; an interval needs five chunks."""
    files = f'files = {{ F16 = "{base}", Q8_0 = "Q8_0.gguf", Q4_K_M = "named.gguf" }}'
    project.config(
        f"[models.pub]\n{files}\n{table}",
        engine="llama_cpp",
        default_model="pub",
        chunks=chunks,
        call_timeout_s=120,
    )


def changed(source: Path, target: Path, old: bytes, new: bytes) -> None:
    """Copy a file with its first occurrence of some bytes replaced."""
    target.write_bytes(source.read_bytes().replace(old, new, 1))


def test_a_copy_of_the_baseline_is_no_level(published: Project) -> None:
    """A file under another name is INVALID in every assertion."""
    shutil.copy(published.path / "F16.gguf", published.path / "copy.gguf")
    declare(published, '[models.same]\nfiles = { F16 = "copy.gguf" }\n')
    published.test(CLAIMS.format(rung="same:F16"))
    result = published.run()
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_CLAIMS} *"])
    result.stdout.fnmatch_lines(["*identical-to-baseline: both are the file sha256 *"])


def test_the_same_tensors_are_no_level(published: Project) -> None:
    """Another header over the same weights is found by the weights."""
    path = published.path
    changed(path / "F16.gguf", path / "copy.gguf", b"general.file_type", b"general.file_typf")
    declare(published, '[models.same]\nfiles = { F16 = "copy.gguf" }\n')
    published.test(CLAIMS.format(rung="same:F16"))
    result = published.run()
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_CLAIMS} *"])
    result.stdout.fnmatch_lines(["*both files have the same tensors to the last bit*"])


@pytest.mark.parametrize("metadata", ["silent", "lying"])
def test_the_name_of_a_level_is_held_against_the_tensors(published: Project, metadata: str) -> None:
    """F16 declared as Q4_K_M is INVALID, if its metadata has nothing and if it has Q4_K_M."""
    path = published.path
    content = (path / "F16.gguf").read_bytes()
    end = content.index(b"general.file_type") + len(b"general.file_type")
    if (
        metadata == "lying"
    ):  # behind the key: the value's type, and the value, 1 for F16 and 15 for Q4_K_M
        content = content[: end + 4] + (15).to_bytes(4, "little") + content[end + 8 :]
    else:
        content = content.replace(b"general.file_type", b"general.file_typf", 1)
    (path / "named.gguf").write_bytes(content)
    declare(published, "")
    published.test(CLAIMS.format(rung="Q4_K_M"))
    result = published.run()
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_CLAIMS} *"])
    result.stdout.fnmatch_lines(["*named.gguf is F16 by the types of its tensors, not Q4_K_M*"])


def test_two_rungs_that_are_one_are_not_compared(published: Project) -> None:
    """A copy of a quantization, and not of the baseline, is found if both are compared."""
    shutil.copy(published.path / "Q8_0.gguf", published.path / "copy.gguf")
    declare(published, '[models.same]\nfiles = { Q8_0 = "copy.gguf" }\n', chunks=20)
    published.test(CLAIMS.format(rung="same:Q8_0"))
    result = published.run()
    result.stdout.fnmatch_lines([f"test_it.py .{'V' * (N_CLAIMS - 1)} *"])


def test_f32_of_the_same_weights_is_lossless_and_says_so(published: Project, draft: Draft) -> None:
    """A float type with every value of the baseline's is a quantization, or equal with a remark."""
    shutil.copy(draft("F32"), published.path / "F32.gguf")
    declare(published, '[models.wide]\nfiles = { F32 = "F32.gguf" }\n', chunks=5)
    published.test("""
@pytest.mark.quant_ladder("wide:F32")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="1%")
    verdict = perplexity.kld < 0.1
    is_remarked = "lossless-by-construction" in {str(one.guard) for one in verdict.guards}
    assert verdict and is_remarked == (verdict.figures[0].estimate.high == 0)
""")
    published.run().assert_outcomes(passed=1)


def test_types_of_cache_are_one_file_and_differ(published: Project) -> None:
    """A KV sweep's entries are one file, and are compared all the same."""
    declare(published, "", chunks=5)
    published.test("""
@pytest.mark.model("pub:F16")
@pytest.mark.kv_ladder("q8_0", "q4_0")
def test_it(ladder):
    assert ladder["q8_0"].kld < ladder["q4_0"].kld
""")
    published.run().assert_outcomes(passed=1)


@pytest.mark.usefixtures("mlx")
@pytest.mark.parametrize("change", ["nothing", "a file beside the weights", "the name of a level"])
def test_a_copy_of_the_baseline_on_mlx(live: Project, change: str) -> None:
    """A folder's copy is found by its hash, by its weights, or by how they are packed."""
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert spec.hf_folder is not None
    for name in ("base", "copy"):
        shutil.copytree(spec.hf_folder, live.path / name)
    if change == "a file beside the weights":
        (live.path / "copy" / "notes.txt").write_text("another folder")
    elif change == "the name of a level":
        config = live.path / "copy" / "config.json"
        quantization = {"quantization": {"bits": 4, "group_size": 64}}
        config.write_text(json.dumps(json.loads(config.read_text()) | quantization))
    level = "4bit" if change == "the name of a level" else "F16"
    live.config(
        '[models.pub]\nfiles = { F16 = "base" }\n'
        f'[models.same]\nfiles = {{ {level} = "copy" }}\n',
        engine="mlx",
        default_model="pub",
        chunks=1,
        call_timeout_s=120,
    )
    live.test(f"""
@pytest.mark.quant_ladder("same:{level}")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="1%")
""")
    result = live.run()
    result.stdout.fnmatch_lines(["test_it.py V *"])
    said = {
        "nothing": "both are the file sha256 ",
        "a file beside the weights": "both files have the same tensors to the last bit",
        "the name of a level": "is 4bit by its own configuration, and no tensor is packed so",
    }
    assert said[change] in result.stdout.str()


def _zeroed(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.zeros_like(tensor)


def _random(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.random.default_rng(tensor.size).normal(0, 1, tensor.shape).astype(tensor.dtype)


def _faint(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    return _random(tensor) * tensor.dtype.type(0.01)


def rewrite(path: Path, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> None:
    """Change every matrix of a GGUF file in place."""
    for tensor in GGUFReader(path, "r+").tensors:
        if len(tensor.shape) > 1:
            tensor.data[:] = change(tensor.data)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (_zeroed, "(broken-logits): all 2048 logits of a row are equal"),
        (_random, "baseline-knows-nothing: the baseline's PPL is "),
        (_faint, "baseline-knows-nothing: the baseline's PPL is "),
    ],
)
def test_a_baseline_that_knows_nothing_proves_nothing(
    published: Project, weights: Callable[[NDArray[np.float32]], NDArray[np.float32]], told: str
) -> None:
    """Against it every quantization is near lossless, or an improvement; even itself is."""
    path = published.path
    shutil.copy(path / "F16.gguf", path / "dead.gguf")
    rewrite(path / "dead.gguf", weights)
    shutil.copy(path / "dead.gguf", path / "twin.gguf")
    declare(published, '[models.same]\nfiles = { F16 = "twin.gguf" }\n', base="dead.gguf")
    published.test("""
@pytest.mark.quant_ladder("Q8_0", "same:F16")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="1%")
""")
    result = published.run()
    result.stdout.fnmatch_lines(["test_it.py VV *"])
    assert told in result.stdout.str()


def _weaken(path: Path, factor: float) -> None:
    """Scale each layer's addition to the residual stream, so that a model knows less."""
    for tensor in GGUFReader(path, "r+").tensors:
        if "attn_output" in tensor.name or "ffn_down" in tensor.name:
            tensor.data[:] = tensor.data * tensor.data.dtype.type(factor)


@pytest.mark.parametrize("factor", [0, 0.7])
def test_a_level_that_gains_has_a_broken_baseline(published: Project, factor: float) -> None:
    """A baseline with some knowledge, a tenth less than its own quantization, is no baseline."""
    path = published.path
    shutil.copy(path / "F16.gguf", path / "weak.gguf")
    _weaken(path / "weak.gguf", factor)
    declare(published, "", base="weak.gguf", chunks=5)
    published.test("""
@pytest.mark.quant("Q8_0")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="1%")
""")
    result = published.run("-v")
    result.stdout.fnmatch_lines(["test_it.py::test_it INVALID *"])
    result.stdout.fnmatch_lines_random(["*: PPL changes by -*"])


def test_a_model_of_another_name_may_gain(published: Project) -> None:
    """A fine-tuned model is declared under its own name, and may know more than its ancestor."""
    path = published.path
    shutil.copy(path / "F16.gguf", path / "weak.gguf")
    _weaken(path / "weak.gguf", 0.7)
    tuned = '[models.tuned]\nfiles = { Q8_0 = "Q8_0.gguf" }\n'
    declare(published, tuned, base="weak.gguf", chunks=5)
    published.test("""
@pytest.mark.quant_ladder("tuned:Q8_0")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="-10%")
""")
    published.run().assert_outcomes(passed=1)
