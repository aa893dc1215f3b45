"""Models that are here already: with the package, or fetched from the Hugging Face hub before.

Nothing is fetched here. The layout of the hub's cache:
https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.errors import ModelError

_NAMES: Final = ("asperf-target", "asperf-draft")

#: The target fine-tuned under MLX's quantization, at the quantizations that it was tuned for.
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


def hf_source(spec: ModelSpec, folder: Path) -> Path:
    """A model's folder in Hugging Face format: its own, or the hub's model on this machine."""
    if spec.hub_id is None or folder.is_dir():
        return folder
    hub = hub_folder(os.environ)
    snapshot = _snapshot(hub, spec.hub_id)
    if snapshot is not None:
        return snapshot
    raise ModelError(
        f"{spec.hub_id} is neither the folder {folder} nor in the local Hugging Face cache {hub}",
        why="nothing is downloaded: a measurement never begins with a transfer of gigabytes that "
        "nobody requested",
        remedy=f"correct the path, or fetch the model once: hf download {spec.hub_id}",
    )


def hub_folder(env: Mapping[str, str]) -> Path:
    """The folder in which `huggingface_hub` keeps its downloads."""
    home = Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    home = Path(env.get("HF_HOME") or home)
    return Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser()


def _snapshot(hub: Path, hub_id: str) -> Path | None:
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    snapshot = repository / "snapshots" / Path(commit).name
    return snapshot if snapshot.is_dir() else None
