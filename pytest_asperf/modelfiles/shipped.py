"""The models and the corpus that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.spec import EngineSettings, ModelSpec

if TYPE_CHECKING:
    from pytest_asperf.engines import Engine

_NAMES: Final = ("asperf-target", "asperf-draft")


def shipped_models() -> tuple[ModelSpec, ...]:
    """Return the shipped models, which are always addressable by name."""
    # So small that a thread waits at barriers for longer than it works.
    own: tuple[tuple[Engine, EngineSettings], ...] = (("llama_cpp", EngineSettings(threads=1)),)
    return tuple(
        ModelSpec(name=name, hf_folder=_data() / "models" / name, own_settings=own)
        for name in _NAMES
    )


def shipped_corpus() -> Path:
    """Return the held-out text that the shipped models never saw in training."""
    return _data() / "corpus" / "heldout.txt"


def shipped_prompts() -> Path:
    """Return the prompts that speculation is measured on: pieces of the held-out text."""
    return _data() / "prompts.json"


def _data() -> Path:
    return Path(str(files("pytest_asperf"))) / "data"
