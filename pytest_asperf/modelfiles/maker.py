"""A model's files in the cache, each made once and named by what it is made from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.modelfiles.cache import build_once
from pytest_asperf.modelfiles.variants import VARIANTS_VERSION

if TYPE_CHECKING:
    from pytest_asperf.config.spec import ModelSpec, Variant

#: Writes the first file or folder, quantized to the level named, to the second path.
Quantize = Callable[[Path, Path, str], None]


@dataclass(frozen=True, slots=True)
class ModelMaker:
    """Makes one model's GGUF files or MLX folders, by the suffix; `on_wait` hears of waiting."""

    spec: ModelSpec
    cache: Path
    suffix: str
    on_wait: Callable[[str], None] | None

    def made(self, level: str, recipe: Mapping[str, str], build: Callable[[Path], None]) -> Path:
        """The file that a recipe gives, built unless it is cached."""
        whole = {"model": self.spec.name, "level": level, **recipe}
        return build_once(self._path(whole), build, recipe=whole, on_wait=self.on_wait)

    def variant(
        self,
        variant: Variant,
        source: Path,
        source_sha256: str,
        write: Callable[[Path, Path, Variant], None],
    ) -> Path:
        """A variant of a model in F16."""
        recipe = {
            "variant": f"{variant.kind}={variant.n}",
            "variants": str(VARIANTS_VERSION),
            "source_sha256": source_sha256,
        }
        return self.made("F16", recipe, lambda target: write(source, target, variant))

    def _path(self, recipe: Mapping[str, str]) -> Path:
        """A name that a person can read and that another recipe cannot have."""
        key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", self.spec.name)[:64]
        return self.cache / "models" / f"{name}-{recipe['level']}-{key}{self.suffix}"
