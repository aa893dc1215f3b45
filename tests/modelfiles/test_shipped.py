from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

import pytest_asperf.modelfiles
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.errors import ConfigError, ModelError
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.modelfiles.mlx_resolve import resolve_mlx
from pytest_asperf.modelfiles.resolve import resolve

CATALOGUE = Catalogue(Path("/root"), shipped_models(), Settings())


def test_the_shipped_models_lie_in_the_package_and_run_on_one_thread() -> None:
    """They are addressable by their names, from folders inside the installed package."""
    package = Path(pytest_asperf.modelfiles.__file__).parents[1]
    models = {spec.name: spec for spec in shipped_models()}
    assert set(models) == {"asperf-target", "asperf-draft", "asperf-target-qat"}
    for name in ("asperf-target", "asperf-draft"):
        spec = models[name]
        assert spec.hf_folder == package / "data" / "models" / name
        assert spec.on("llama_cpp").settings.as_dict() == {"threads": 1}
        assert spec.on("mlx").settings.as_dict() == {}
    tuned = models["asperf-target-qat"]
    assert tuned.engine == "mlx"
    assert dict(tuned.files)["F16"] == models["asperf-target"].hf_folder
    assert shipped_corpus() == package / "data" / "corpus" / "heldout.txt"


def _never(*_: object) -> NoReturn:
    raise AssertionError("nothing is quantized")


@pytest.mark.parametrize("level", ["F16", "4bit", "3bit"])
def test_the_tuned_target_runs_on_mlx_whatever_the_session_s_engine(
    level: str, tmp_path: Path
) -> None:
    """Its quantizations are found as they are, with the tokenizer of the target's own."""
    ref = CATALOGUE.find(f"asperf-target-qat:{level}", where="t")
    assert ref.spec.engine == "mlx"
    found = resolve_mlx(ref, cache=tmp_path, quantize=_never, quantizer_id=_never)
    assert found.level == level
    target = CATALOGUE.find("asperf-target:F16", where="t", engine="mlx")
    original = resolve_mlx(target, cache=tmp_path, quantize=_never, quantizer_id=_never)
    assert found.tokenizer_sha256 == original.tokenizer_sha256
    assert list(tmp_path.iterdir()) == []


def test_the_tuned_target_is_refused_on_llama_cpp(tmp_path: Path) -> None:
    """By its quantizations if one is named, otherwise because a folder is no GGUF file."""
    with pytest.raises(
        ConfigError,
        match=r"llama_cpp has no quantization 4bit; did you mean "
        r"'Q4_K_M'",
    ):
        CATALOGUE.find("asperf-target-qat:4bit", where="t", engine="llama_cpp")
    with pytest.raises(ConfigError, match="has no file for quantization Q4_K_M"):
        CATALOGUE.find("asperf-target-qat:Q4_K_M", where="t", engine="llama_cpp")
    ref = CATALOGUE.find("asperf-target-qat:F16", where="t", engine="llama_cpp")
    with pytest.raises(ModelError, match=r"asperf-target-qat:F16 is a folder, and llama\.cpp"):
        resolve(ref, cache=tmp_path, quantize=_never, quantizer_id=_never)
    other = ModelRef(replace(ref.spec, files=(("Q4_0", shipped_corpus().parent),)), "Q4_0")
    with pytest.raises(ModelError, match="or measure it on MLX: engine = mlx"):
        resolve(other, cache=tmp_path, quantize=_never, quantizer_id=_never)
