"""Variants of a Llama model in F16: the same function at another cost, or on another memory.

With them one pair of models covers regimes that would need many: acceptance stays equal, as the
logits do, while the cost of a step, or the kind of rollback, varies. The parts of a padded model
are decided here, for every output format, under GGUF's names of tensors.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.config.spec import ModelSpec, Variant
from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.cache import build_once

#: Part of the key of every file made here: raise it when the same input gives other bytes.
VARIANTS_VERSION: Final = 1

Tensor = tuple[str, "NDArray[Any]"]

_ZEROED: Final = ("attn_output.weight", "ffn_down.weight")
#: Experts of a mixture: factors of their outputs, and places by which the hidden numbers of each
#: are shifted from those of the one before. With a flat router the two experts of a token weigh
#: about the same. Rounding that chooses another one costs 0.001 nats, and a fault 0.02 to 0.1.
_LEAST_FACTOR, _MOST_FACTOR = 0.8, 1.2
_SHIFT: Final = 17
_FLAT: Final = 0.5


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Sizes of a layer's state-space part: as small as the architectures admit."""

    d_inner: int  #: channels
    n_heads: int  #: heads that share a time step; 0 if each channel has its own
    d_conv: int = 4  #: positions that are convolved
    d_state: int = 16  #: numbers that each channel remembers
    dt_rank: int = 16  #: rank of the time step's projection, where channels have their own


def not_variable(path: Path, what: str) -> ModelError:
    """The error for a model of which no variants can be made."""
    return ModelError(
        f"{path}: variants are made of dense Llama models in F16, this is {what}",
        why="a variant must have the same logits, which is known for these only",
        remedy="use a shipped model, such as asperf-target+layers=8",
    )


class VariedModel:
    """The tensors of a variant, made of the model's tensors by their names in GGUF.

    `layers` are n more layers whose output projections are zero; `experts` n copies of each
    feed-forward part, of which a router of random weights uses one for each token; `hybrid` is a
    Falcon-H1 with the model's attention and a state-space part whose output is zero. These have the
    model's logits. A `mixture` of n experts, of which two are used, has other ones if a token gets
    another expert, or only a part of it. `recurrent` is a Mamba of n layers and random weights on
    the model's embedding.
    """

    def __init__(
        self, tensors: Mapping[str, NDArray[Any]], variant: Variant, *, n_layers: int, n_embd: int
    ) -> None:
        self.variant = variant
        self._tensors = tensors
        self._n_given = n_layers
        self._n_embd = n_embd
        layers = {"layers": n_layers + variant.n, "recurrent": variant.n}
        self.n_layers = layers.get(variant.kind, n_layers)
        self.n_experts_used = {"experts": 1, "mixture": 2}.get(variant.kind, 0)
        spaces = {"hybrid": StateSpace(64, 2), "recurrent": StateSpace(2 * n_embd, 0)}
        self.state_space = spaces.get(variant.kind)
        # One model spec means one model on every machine.
        self._random = np.random.default_rng(20261121)

    def all_tensors(self) -> Iterator[Tensor]:
        """Yield the variant's tensors."""
        kind = self.variant.kind
        if kind == "recurrent" and self.state_space is not None:
            yield from self._recurrent(self.state_space)
            return
        for name, values in self._tensors.items():
            yield self._changed(name, values)
        if kind == "layers":
            yield from self._more_layers()
        for layer in range(self._n_given):
            if self.n_experts_used:
                scale = 1.0 if kind == "experts" else _FLAT * self._n_embd**-0.5
                router = self._normal(self.variant.n, self._n_embd, scale=scale)
                yield f"blk.{layer}.ffn_gate_inp.weight", router
            elif self.state_space is not None:
                yield from self._beside_attention(layer, self.state_space)

    def _changed(self, name: str, values: NDArray[Any]) -> Tensor:
        part = name.removeprefix("blk.").partition(".")[2]
        if not self.n_experts_used or not part.startswith("ffn_") or "norm" in part:
            return name, values
        copies = [values] * self.variant.n
        if self.variant.kind == "mixture":
            is_down = "down" in part
            spread = np.linspace(_LEAST_FACTOR, _MOST_FACTOR, self.variant.n, dtype=values.dtype)
            copies = [
                np.roll(values, number * _SHIFT, axis=int(is_down)) * (factor if is_down else 1)
                for number, factor in enumerate(spread)
            ]
        return name.replace(".weight", "_exps.weight"), np.stack(copies)

    def _more_layers(self) -> Iterator[Tensor]:
        for extra in range(self.variant.n):
            prefix = f"blk.{extra % self._n_given}."
            for name, values in self._tensors.items():
                if name.startswith(prefix):
                    part = name.removeprefix(prefix)
                    made = np.zeros_like(values) if part in _ZEROED else values
                    yield f"blk.{self._n_given + extra}.{part}", made

    def _beside_attention(self, layer: int, sizes: StateSpace) -> Iterator[Tensor]:
        prefix = f"blk.{layer}.ssm_"
        n_heads, d_inner = sizes.n_heads, sizes.d_inner
        convolved = d_inner + 2 * sizes.d_state
        projected = d_inner + convolved + n_heads
        yield prefix + "in.weight", self._normal(projected, self._n_embd).astype(np.float16)
        yield prefix + "conv1d.weight", self._normal(convolved, sizes.d_conv, scale=0.2)
        yield prefix + "conv1d.bias", np.zeros(convolved, np.float32)
        yield prefix + "dt.bias", np.zeros(n_heads, np.float32)
        yield prefix + "a", np.full((n_heads, 1), -1, np.float32)
        yield prefix + "d", np.ones((n_heads, 1), np.float32)
        yield prefix + "norm.weight", np.ones((1, d_inner), np.float32)
        yield prefix + "out.weight", np.zeros((self._n_embd, d_inner), np.float16)

    def _recurrent(self, sizes: StateSpace) -> Iterator[Tensor]:
        inner, rank = sizes.d_inner, sizes.dt_rank
        for name in ("token_embd.weight", "output_norm.weight", "output.weight"):
            if name in self._tensors:
                yield name, self._tensors[name]
        for layer in range(self.n_layers):
            prefix = f"blk.{layer}.ssm_"
            decay = -np.arange(1, sizes.d_state + 1, dtype=np.float32)
            half = np.float16
            yield f"blk.{layer}.attn_norm.weight", np.ones(self._n_embd, np.float32)
            yield prefix + "in.weight", self._normal(2 * inner, self._n_embd).astype(half)
            yield prefix + "conv1d.weight", self._normal(inner, sizes.d_conv, scale=0.5)
            yield prefix + "conv1d.bias", np.zeros(inner, np.float32)
            yield prefix + "x.weight", self._normal(rank + 2 * sizes.d_state, inner).astype(half)
            yield prefix + "dt.weight", self._normal(inner, rank, scale=0.1)
            yield prefix + "dt.bias", np.full(inner, -2, np.float32)
            yield prefix + "a", np.broadcast_to(decay, (inner, sizes.d_state)).copy()
            yield prefix + "d", np.ones(inner, np.float32)
            yield prefix + "out.weight", self._normal(self._n_embd, inner).astype(half)

    def _normal(self, *shape: int, scale: float | None = None) -> NDArray[np.float32]:
        spread = shape[-1] ** -0.5 if scale is None else scale
        return (self._random.standard_normal(shape) * spread).astype(np.float32)


#: Writes the first file or folder, at the named quantization, to the second path.
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
