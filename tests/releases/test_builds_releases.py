"""Releases far apart have one meaning for equal words, and name their missing features."""

import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import ModelRef, ModelSpec, parse_variant
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker
from pytest_asperf.measure.ladder import PPL_N_CTX, score_ladder, split_chunks
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator
from pytest_asperf.testing import check_engine
from tests.releases.conftest import Release

#: Gives the file of a model, on an engine, at a quantization.
Shelf = Callable[[str, "Engine", str], Path]
#: Gives PPL of the target on an engine, at a quantization, with settings.
Here = Callable[["Engine", str, EngineSettings], float]

RELEASES: Final[tuple[tuple[Engine, str], ...]] = (
    ("llama_cpp", "0.3.16"),
    ("llama_cpp", "0.3.26"),
    ("llama_cpp", "0.3.36"),
    ("mlx", "0.28.0"),
    ("mlx", "0.30.7"),
    ("mlx", "0.32.2"),
)
#: Rounds in the middle of a sum: a quantization, and settings.
ROUNDED: Final[dict[Engine, dict[str, tuple[str, EngineSettings]]]] = {
    "llama_cpp": {
        "weights": ("Q4_K_M", EngineSettings(flash_attn="off")),
        "attention": ("F16", EngineSettings(flash_attn="on")),
        "kv-cache": ("F16", EngineSettings(flash_attn="on", type_k="q8_0", type_v="q8_0")),
    },
    "mlx": {
        "weights": ("4bit", EngineSettings()),
        "kv-cache": ("F16", EngineSettings(kv_bits=8)),
    },
}
#: Models of an architecture that a release does not have.
UNKNOWN: Final[dict[tuple[Engine, str], str]] = {("mlx", "0.28.0"): "asperf-draft+hybrid"}
TEXT: Final = shipped_corpus().read_text("utf-8")
#: Without a GPU, MLX needs seconds for a chunk.
N_CHUNKS: Final[dict[Engine, int]] = {"llama_cpp": 8, "mlx": 2}


@pytest.fixture(scope="module")
def locator(session_cache: Path) -> Shelf:
    """Return a function that gives a shipped model's file, made by the engine installed here."""

    def located(name: str, engine: Engine, level: str) -> Path:
        name, plus, change = name.partition("+")
        (spec,) = (spec for spec in shipped_models() if spec.name == name)
        if plus:
            variant = parse_variant(change, where="tests/releases")
            spec = ModelSpec(change, hf_folder=spec.hf_folder, variant=variant)
        build = EngineBuild(engine, Path(sys.executable))
        files = ModelLocator(build, cache=session_cache, call_timeout_s=120)
        return files.locate(ModelRef(spec.on(engine), level)).path

    return located


@pytest.fixture(scope="module", params=RELEASES, ids="-".join)
def released(request: pytest.FixtureRequest, release: Release) -> tuple[Engine, str, EngineBuild]:
    """An engine, its version, and its environment."""
    engine, version = request.param
    return engine, version, release(engine, version)


def perplexity(build: EngineBuild, model: Path, settings: EngineSettings) -> float:
    """Return PPL of the first chunks of the held-out text."""
    with Worker(build) as worker:
        worker.load("m", model, settings)
        tokens = worker.tokenize("m", TEXT[:20_000])
        chunks = split_chunks(
            tokens, n_ctx=PPL_N_CTX, at_most=N_CHUNKS[build.engine], corpus="heldout"
        )
        rows, _ = score_ladder(worker, ["m"], chunks, concurrency=1, progress=lambda _: None)["m"]
    return math.exp(fmean(nll for row in rows for nll in row.nll))


@pytest.fixture(scope="module")
def here(locator: Shelf) -> Here:
    """Return a function that gives PPL of the target on the installed engine, computed once."""

    @cache
    def found(engine: Engine, level: str, settings: EngineSettings) -> float:
        build = EngineBuild(engine, Path(sys.executable))
        return perplexity(build, locator("asperf-target", engine, level), settings)

    return found


def floating(engine: Engine) -> EngineSettings:
    """Return settings in which an F16 model's arithmetic is floating point throughout.

    Flash attention of 0.3.16 sums V in F16, later versions in F32.
    """
    return EngineSettings(flash_attn="off") if engine == "llama_cpp" else EngineSettings()


def test_it_conforms(released: tuple[Engine, str, EngineBuild], locator: Shelf) -> None:
    """It passes the check that every engine must pass."""
    engine, _, build = released
    check_engine(build, locator("asperf-draft", engine, "F16"))


def test_it_says_which_release_runs(released: tuple[Engine, str, EngineBuild]) -> None:
    """Run record has the version, and the folder of its environment."""
    _, version, build = released
    with Worker(build) as worker:
        described = worker.describe()
    assert described.version == version
    assert Path(described.library_path or "").is_relative_to(build.python.parent.parent)
    assert len(described.library_sha256 or "") == 64


def test_floating_point_gives_the_same_perplexity(
    released: tuple[Engine, str, EngineBuild], locator: Shelf, here: Here
) -> None:
    """PPL of the F16 target is that of the engine installed here, to rounding."""
    engine, _, build = released
    model, settings = locator("asperf-target", engine, "F16"), floating(engine)
    expected = here(engine, "F16", settings)
    assert perplexity(build, model, settings) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("what", ["weights", "attention", "kv-cache"])
def test_what_is_rounded_gives_nearly_the_same(
    released: tuple[Engine, str, EngineBuild], locator: Shelf, here: Here, what: str
) -> None:
    """Kernels that round in the middle of a sum agree within 0.1 % of PPL."""
    engine, _, build = released
    if what not in ROUNDED[engine]:
        pytest.skip(f"{engine} has no setting for it")
    level, settings = ROUNDED[engine][what]
    model = locator("asperf-target", engine, level)
    expected = here(engine, level, settings)
    assert perplexity(build, model, settings) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("target", "memory", "rollback"),
    [
        ("asperf-target", "attention only", "trim"),
        ("asperf-target", "attention only", "checkpoint"),
        ("asperf-draft+hybrid", "hybrid", "checkpoint"),
        ("asperf-draft+recurrent", "recurrent", "checkpoint"),
    ],
)
def test_speculation_changes_nothing(
    released: tuple[Engine, str, EngineBuild],
    locator: Shelf,
    target: str,
    memory: str,
    rollback: str,
) -> None:
    """Greedy speculation gives the target's own tokens, by any way back of its memory."""
    engine, version, build = released
    if UNKNOWN.get((engine, version)) == target:
        pytest.skip(f"{engine} {version} does not know its architecture")
    how: dict[str, Any] = {"pair": "p", "n_new": 48, "temperature": 0.0, "seed": 0, "rule": "exact"}
    with Worker(build) as worker:
        for role, name in (("target", target), ("draft", "asperf-draft")):
            worker.load(role, locator(name, engine, "F16"), floating(engine))
        prompt = worker.tokenize("target", TEXT[:600])
        asked = "auto" if memory != "attention only" else rollback
        names: dict[str, Any] = {
            "pair": "p",
            "target": "target",
            "draft": "draft",
            "rollback": asked,
        }
        opened = worker.call("pair_open", **names, n_ctx=512, k=4)
        alone = worker.call("pair_generate", **how, prompt=prompt, k=0)
        drafted = worker.call("pair_generate", **how, prompt=prompt, k=4)
    assert (opened["target"]["memory"], opened["target"]["rollback"]) == (memory, rollback)
    assert drafted["tokens"] == alone["tokens"]
    if memory != "recurrent":  # which is another function than its draft
        assert len(drafted["rounds"]) < 48


def test_an_architecture_that_a_version_does_not_know_is_refused(
    release: Release, locator: Shelf
) -> None:
    """In the library's own words, and the worker lives on."""
    for (engine, version), name in UNKNOWN.items():
        with Worker(release(engine, version)) as worker:
            with pytest.raises(EngineRefusedError, match="not supported"):
                worker.load("m", locator(name, engine, "F16"), EngineSettings())
            worker.load("m", locator("asperf-draft", engine, "F16"), EngineSettings())


def test_what_a_version_cannot_do_it_refuses_with_its_name(
    release: Release, locator: Shelf
) -> None:
    """0.3.16 cannot decide on flash attention: a request for it, or for its dependents, raises."""
    model = locator("asperf-draft", "llama_cpp", "F16")
    with Worker(release("llama_cpp", "0.3.16")) as worker:
        assert list(worker.describe().cannot) == ["flash_attn=auto"]
        for settings in (EngineSettings(flash_attn="auto"), EngineSettings(type_v="q8_0")):
            with pytest.raises(EngineRefusedError, match=r"llama-cpp-python 0\.3\.16") as refused:
                worker.load("m", model, settings)
            assert refused.value.kind == "version"
        worker.load("m", model, EngineSettings())
        tokens = worker.tokenize("m", TEXT[:200])
        assert worker.prompt("m", tokens[:32], 0).context.flash_attn == "off"
