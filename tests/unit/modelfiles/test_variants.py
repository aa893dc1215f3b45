"""Variants have the logits of the model they are made of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_asperf.errors import ConfigError, ModelError
from pytest_asperf.host import EngineBuild, Worker
from pytest_asperf.measure.files import ModelShelf
from pytest_asperf.modelfiles.gguf_read import bytes_per_token, inspect_gguf
from pytest_asperf.modelfiles.resolve import resolve
from pytest_asperf.modelfiles.shipped import shipped_models
from pytest_asperf.spec import EngineSettings, ModelRef, ModelSpec, Variant, parse_variant

BUILD = EngineBuild("llama_cpp", Path(sys.executable))


def _varied(variant: Variant, cache: Path) -> Path:
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    shelf = ModelShelf(BUILD, cache=cache, call_timeout_s=120)
    return shelf.locate(ModelRef(ModelSpec("v", hf_folder=spec.hf_folder, variant=variant))).path


@pytest.mark.parametrize(
    ("variant", "same"),
    [(Variant("layers", 3), 1e-9), (Variant("experts", 4), 1e-4), (Variant("hybrid", 0), 1e-4)],
    ids=str,
)
def test_a_variant_has_the_models_logits(
    draft_gguf: Path, session_cache: Path, variant: Variant, same: float
) -> None:
    """Every token's distribution is the model's own, but for rounding in other kernels."""
    path = _varied(variant, session_cache)
    text = "def area(width, height):\n    return width * height\n" * 8
    with Worker(BUILD) as worker:
        for name, file in (("model", draft_gguf), ("variant", path)):
            worker.load(name, file, EngineSettings(threads=1))
        tokens = worker.tokenize("model", text)[:96]
        scores, _ = worker.score(["model", "variant"], tokens, 8)["variant"]
    assert max(scores.kld) < same


def test_more_layers_are_more_to_read(draft_gguf: Path, session_cache: Path) -> None:
    """A padded model reads more bytes for a token, and copies of experts hardly any."""
    plain, padded, mixed = (
        bytes_per_token(inspect_gguf(path))
        for path in (
            draft_gguf,
            _varied(Variant("layers", 3), session_cache),
            _varied(Variant("experts", 4), session_cache),
        )
    )
    assert padded > 1.5 * plain
    assert plain < mixed < 1.05 * plain


def test_another_model_is_refused(session_cache: Path) -> None:
    """What is no dense Llama in F16 has variants of unknown logits."""
    made = _varied(Variant("experts", 4), session_cache)
    spec = ModelSpec("again", gguf=made, variant=Variant("layers", 1))
    with pytest.raises(ModelError, match="dense Llama models in F16"):
        resolve(
            ModelRef(spec),
            cache=session_cache,
            quantize=lambda *_: None,
            quantizer_id=lambda: "none",
        )


def test_a_variant_is_read_from_its_name() -> None:
    """The number may be left out where there is a usual one."""
    assert parse_variant("layers=8", where="here") == Variant("layers", 8)
    assert parse_variant("experts", where="here") == Variant("experts", 8)
    assert parse_variant("hybrid", where="here") == Variant("hybrid", 0)
    assert parse_variant("recurrent=3", where="here") == Variant("recurrent", 3)


@pytest.mark.parametrize("text", ["", "layers", "layers=0", "hybrid=2", "layer=8", "layers=1e3"])
def test_what_is_no_variant_is_refused(text: str) -> None:
    """A variant that nobody makes is an error that names the place."""
    with pytest.raises(ConfigError, match=r"^here: "):
        parse_variant(text, where="here")
