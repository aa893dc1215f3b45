"""Variants have the logits of the model they are made of."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import ModelRef, ModelSpec, Variant, parse_variant
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.errors import ConfigError, ModelError
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import LocatedModel, ModelLocator
from pytest_asperf.modelfiles.mlx_resolve import resolve_mlx
from pytest_asperf.modelfiles.resolve import resolve
from tests.engine_facts import context, loaded

SETTINGS = {"llama_cpp": EngineSettings(threads=1), "mlx": EngineSettings()}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("llama_cpp", marks=pytest.mark.live),
        pytest.param("mlx", marks=[pytest.mark.live, pytest.mark.mlx]),
    ],
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both engines, as far as they are installed."""
    name: Engine = request.param
    if name == "mlx":
        request.getfixturevalue("mlx")
    return name


@pytest.fixture(scope="module")
def worker(engine: Engine, session_cache: Path) -> Iterator[Worker]:
    """One process of the engine, with the model loaded."""
    with Worker(EngineBuild(engine, Path(sys.executable))) as worker:
        worker.load("model", _located(engine, session_cache, None).path, SETTINGS[engine])
        yield worker


def _located(engine: Engine, cache: Path, variant: Variant | None) -> LocatedModel:
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    build = EngineBuild(engine, Path(sys.executable))
    locator = ModelLocator(build, cache=cache, call_timeout_s=120)
    return locator.locate(ModelRef(ModelSpec("v", hf_folder=spec.hf_folder, variant=variant)))


@pytest.mark.parametrize(
    ("variant", "same"),
    [
        (Variant("layers", 3), 1e-9),
        (Variant("experts", 4), 1e-4),
        (Variant("mixture", 4), 0.1),
        (Variant("hybrid", 0), 1e-4),
        (Variant("recurrent", 1), math.inf),
    ],
    ids=str,
)
def test_a_variant_has_the_models_logits(
    engine: Engine, worker: Worker, session_cache: Path, variant: Variant, same: float
) -> None:
    """Every token's distribution is the model's own, but for rounding in other kernels.

    A mixture's is near it. Not so a recurrent one's, which has the tokenizer in common.
    """
    text = "def area(width, height):\n    return width * height\n" * 8
    worker.load("variant", _located(engine, session_cache, variant).path, SETTINGS[engine])
    tokens = worker.tokenize("model", text)[:96]
    assert worker.tokenize("variant", text)[:96] == tokens
    scores, _ = worker.score(["model", "variant"], tokens, 8)["variant"]
    worker.unload("variant")
    assert max(scores.kld) < same


def test_more_layers_are_more_to_read(engine: Engine, session_cache: Path) -> None:
    """A padded model reads more bytes for a token, and copies of experts hardly any."""
    plain, padded, mixed = (
        _located(engine, session_cache, variant).bytes_per_token(0, loaded(dtype="f16"), context())
        or 0
        for variant in (None, Variant("layers", 3), Variant("experts", 4))
    )
    assert padded > 1.5 * plain
    assert plain < mixed < 1.05 * plain


def test_another_model_is_refused(engine: Engine, session_cache: Path) -> None:
    """A model that is no dense Llama in F16 has padded models of unknown logits."""
    made = _located(engine, session_cache, Variant("experts", 4)).path
    spec = ModelSpec("again", variant=Variant("layers", 1))
    is_gguf = engine == "llama_cpp"
    ref = ModelRef(replace(spec, gguf=made) if is_gguf else replace(spec, hf_folder=made))
    resolver = resolve if engine == "llama_cpp" else resolve_mlx
    with pytest.raises(ModelError, match=r"dense Llama models in F16|MixtralForCausalLM"):
        resolver(ref, cache=session_cache, quantize=lambda *_: None, quantizer_id=lambda: "none")


@pytest.mark.usefixtures("mlx")
def test_a_quantised_folder_has_no_variants(session_cache: Path) -> None:
    """Its quantization is named, and the alternative."""
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    locator = ModelLocator(
        EngineBuild("mlx", Path(sys.executable)), cache=session_cache, call_timeout_s=120
    )
    made = locator.locate(ModelRef(spec, "4bit")).path
    varied = ModelSpec("v", hf_folder=made, variant=Variant("layers", 1))
    with pytest.raises(ModelError, match="in F16, this is 4bit"):
        locator.locate(ModelRef(varied))


def test_a_variant_is_read_from_its_name() -> None:
    """The number may be left out if there is a usual one."""
    assert parse_variant("layers=8", where="here") == Variant("layers", 8)
    assert parse_variant("experts", where="here") == Variant("experts", 8)
    assert parse_variant("mixture=4", where="here") == Variant("mixture", 4)
    assert parse_variant("hybrid", where="here") == Variant("hybrid", 0)
    assert parse_variant("recurrent=3", where="here") == Variant("recurrent", 3)


@pytest.mark.parametrize("text", ["", "layers", "layers=0", "hybrid=2", "layer=8", "layers=1e3"])
def test_what_is_no_variant_is_refused(text: str) -> None:
    """An unknown kind of padded model is an error that names the place."""
    with pytest.raises(ConfigError, match=r"^here: "):
        parse_variant(text, where="here")
