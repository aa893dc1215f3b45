from __future__ import annotations

from pathlib import Path

import pytest_asperf.modelfiles
from pytest_asperf.modelfiles.shipped import shipped_corpus, shipped_models


def test_the_shipped_models_lie_in_the_package_and_run_on_one_thread() -> None:
    """Both are addressable by their names, from folders inside the installed package."""
    package = Path(pytest_asperf.modelfiles.__file__).parents[1]
    models = {spec.name: spec for spec in shipped_models()}
    assert set(models) == {"asperf-target", "asperf-draft"}
    for name, spec in models.items():
        assert spec.hf_folder == package / "data" / "models" / name
        assert spec.on("llama_cpp").settings.as_dict() == {"threads": 1}
        assert spec.on("mlx").settings.as_dict() == {}
    assert shipped_corpus() == package / "data" / "corpus" / "heldout.txt"
