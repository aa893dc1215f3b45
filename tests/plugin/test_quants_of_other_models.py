"""A file declared as a quantization of another model is INVALID, and so is an impossible gain."""

import shutil
import sys
from pathlib import Path

import pytest
from gguf import GGUFReader

from pytest_asperf.config.engines import level_recipe
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator
from tests.conftest import Draft
from tests.plugin.conftest import Project

TESTS = """
@pytest.mark.quant("{level}")
def test_ppl(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.quant_ladder("{level}")
def test_size(ladder):
    assert ladder["{level}"].size / ladder["F16"].size <= 10

@pytest.mark.quant_ladder("{level}")
def test_speed(ladder):
    assert ladder["{level}"].throughput("tg8") / ladder["F16"].throughput("tg8") <= 10

@pytest.mark.model("pub:{level}")
def test_rate(throughput):
    assert throughput("tg8") >= 1
"""
N_TESTS = 4


def _folder(name: str) -> Path:
    (spec,) = (spec for spec in shipped_models() if spec.name == name)
    assert spec.hf_folder is not None
    return spec.hf_folder


def _configure(project: Project, engine: str, tables: str) -> None:
    project.config(
        tables, engine=engine, default_model="pub", chunks=5, call_timeout_s=120, max_cv="1000%"
    )


@pytest.fixture(scope="module")
def target_q8(session_cache: Path) -> Path:
    """The shipped target at Q8_0, with the draft's tokenizer; not to be changed."""
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-target")
    build = EngineBuild("llama_cpp", Path(sys.executable))
    locator = ModelLocator(build, cache=session_cache, call_timeout_s=120)
    return locator.locate(ModelRef(spec, "Q8_0")).path


@pytest.fixture
def mixed(live: Project, draft: Draft, target_q8: Path) -> Project:
    """A project with the draft's F16 and the larger target's Q8_0."""
    shutil.copy(draft("F16"), live.path / "f16.gguf")
    shutil.copy(target_q8, live.path / "q8.gguf")
    return live


def test_a_level_of_a_larger_model(mixed: Project) -> None:
    """It has a PPL far below the baseline's, and is INVALID in each assertion, with both named."""
    _configure(mixed, "llama_cpp", '[models.pub]\nfiles = { F16 = "f16.gguf", Q8_0 = "q8.gguf" }')
    mixed.test(TESTS.format(level="Q8_0"))
    result = mixed.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_TESTS} *"])
    result.stdout.fnmatch_lines(["*q8.gguf and *f16.gguf are two models: layers 8 against 2*"])


def test_a_level_with_other_tokens(live: Project, draft: Draft) -> None:
    """Two tokens that changed places split the same text in another way, in each assertion."""
    for level in ("f16", "q8"):
        shutil.copy(draft({"f16": "F16", "q8": "Q8_0"}[level]), live.path / f"{level}.gguf")
    tokens = GGUFReader(live.path / "q8.gguf", "r+").fields["tokenizer.ggml.tokens"]
    first, *others = (tokens.parts[place] for place in tokens.data[500:])
    other = next(text for text in others if text.size == first.size)
    first[:], other[:] = other.copy(), first.copy()
    _configure(live, "llama_cpp", '[models.pub]\nfiles = { F16 = "f16.gguf", Q8_0 = "q8.gguf" }')
    live.test(TESTS.format(level="Q8_0"))
    result = live.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_TESTS} *"])
    result.stdout.fnmatch_lines(["*q8.gguf and *f16.gguf are two models: their tokens differ*"])


def _write_changed(project: Project, draft: Draft, key: str) -> None:
    """Write the draft's F16 as it is, and its Q8_0 with half the value of a key."""
    for level, name in (("F16", "f16"), ("Q8_0", "q8")):
        shutil.copy(draft(level), project.path / f"{name}.gguf")
    field = GGUFReader(project.path / "q8.gguf", "r+").fields[f"llama.{key}"]
    field.parts[field.data[0]][:] /= 2


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("rope.freq_base", "rope.freq_base 5000 against 10000"),
        (
            "attention.layer_norm_rms_epsilon",
            "attention.layer_norm_rms_epsilon 5e-06 against 1e-05",
        ),
    ],
)
def test_a_level_of_other_rules(live: Project, draft: Draft, key: str, told: str) -> None:
    """Weights of the right sizes that are computed in another way, in each assertion."""
    _write_changed(live, draft, key)
    _configure(live, "llama_cpp", '[models.pub]\nfiles = { F16 = "f16.gguf", Q8_0 = "q8.gguf" }')
    live.test(TESTS.format(level="Q8_0"))
    result = live.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_TESTS} *"])
    result.stdout.fnmatch_lines([f"*q8.gguf and *f16.gguf are two models: {told}*"])


def test_a_tuned_model_may_have_other_rules(live: Project, draft: Draft) -> None:
    """A model of its own name, such as one for long contexts, is compared in PPL."""
    _write_changed(live, draft, "rope.freq_base")
    tables = (
        '[models.pub]\nfiles = { F16 = "f16.gguf" }\n[models.tuned]\nfiles = { Q8_0 = "q8.gguf" }'
    )
    _configure(live, "llama_cpp", tables)
    live.test("""
@pytest.mark.quant_ladder("tuned:Q8_0")
def test_it(perplexity):
    assert_ppl_delta(perplexity, below="500%")
""")
    live.run().assert_outcomes(passed=1)


def test_a_rung_of_a_larger_model(mixed: Project) -> None:
    """A model that is named in the sweep has to be of the baseline's shape to be scored."""
    _configure(
        mixed,
        "llama_cpp",
        '[models.pub]\nfiles = { F16 = "f16.gguf" }\n[models.other]\nfiles = { Q8_0 = "q8.gguf" }',
    )
    mixed.test("""
@pytest.mark.quant_ladder("other:Q8_0")
def test_ppl(perplexity):
    assert_ppl_delta(perplexity, below="1%")
""")
    result = mixed.run()
    result.stdout.fnmatch_lines(["test_it.py V *", "*other:Q8_0 and pub:F16 are two models: *"])


def test_a_level_of_a_larger_model_on_mlx(live: Project, mlx: EngineBuild) -> None:
    """Folders are distinguished by their configuration."""
    shutil.copytree(_folder("asperf-draft"), live.path / "f16")
    with Worker(mlx) as worker:
        worker.quantize(_folder("asperf-target"), live.path / "q8", level_recipe("8bit", "mlx"))
    _configure(live, "mlx", '[models.pub]\nfiles = { F16 = "f16", 8bit = "q8" }')
    live.test(TESTS.format(level="8bit"))
    result = live.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines([f"test_it.py {'V' * N_TESTS} *"])
    result.stdout.fnmatch_lines(["*q8 and *f16 are two models: layers 8 against 2*"])


def test_two_engines_are_compared_on_one_model(mixed: Project, mlx: EngineBuild) -> None:
    """A folder and a GGUF file that are declared as one model have to be one."""
    with Worker(mlx) as worker:
        worker.quantize(_folder("asperf-draft"), mixed.path / "8bit", level_recipe("8bit", "mlx"))
    _configure(mixed, "llama_cpp", '[models.pub]\nfiles = { Q8_0 = "q8.gguf", 8bit = "8bit" }')
    mixed.test("""
@pytest.mark.quant("Q8_0")
def test_it(throughput):
    mlx = throughput("tg8", engine="mlx", quant="8bit")
    assert mlx / throughput("tg8", engine="llama_cpp") > 1
""")
    result = mixed.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines(["test_it.py V *", "*8bit and *q8.gguf are two models: layers 2*"])


def test_levels_that_somebody_published_are_levels(live: Project, draft: Draft) -> None:
    """Files of one model are measured as before."""
    for level in ("F16", "Q8_0"):
        shutil.copy(draft(level), live.path / f"{level}.gguf")
    _configure(live, "llama_cpp", '[models.pub]\nfiles = { F16 = "F16.gguf", Q8_0 = "Q8_0.gguf" }')
    live.test(TESTS.format(level="Q8_0"))
    live.run("--asperf-max-pairs=30").assert_outcomes(passed=N_TESTS)
