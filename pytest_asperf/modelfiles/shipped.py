"""The models and the corpus that come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelSpec

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine

_NAMES: Final = ("asperf-target", "asperf-draft")

#: The target fine-tuned under MLX's quantization, at the levels that it was tuned for.
_QAT_NAME: Final = "asperf-target-qat"
_QAT_LEVELS: Final = ("4bit", "3bit")


def shipped_models() -> tuple[ModelSpec, ...]:
    """The shipped models, which are always addressable by name."""
    # So small that a thread waits at barriers for longer than it works.
    engines: tuple[Engine, ...] = ("llama_cpp", "llama_tools", "llama_cpp_server")
    own = (
        *((engine, EngineSettings(threads=1)) for engine in engines),
        # With a number of its own, llama-server gives each slot the whole of their short context.
        ("llama_server", EngineSettings(threads=1, parallel=4)),
    )
    models = _data() / "models"
    tuned = ((level, models / _QAT_NAME / level) for level in _QAT_LEVELS)
    files = (("F16", models / "asperf-target"), *tuned)
    return (
        *(ModelSpec(name=name, hf_folder=models / name, own_settings=own) for name in _NAMES),
        ModelSpec(name=_QAT_NAME, files=files, engine="mlx"),
    )


def shipped_corpus() -> Path:
    """The held-out text that the shipped models never saw in training."""
    return _data() / "corpus" / "heldout.txt"


def shipped_prompts() -> Path:
    """The prompts that speculation is measured on: pieces of the held-out text."""
    return _data() / "prompts.json"


def _data() -> Path:
    return Path(str(resources.files("pytest_asperf"))) / "data"
