"""Models that were fetched from the Hugging Face hub before; nothing is fetched here.

Layout: https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.config.spec import ModelSpec


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
        "nobody asked for",
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
