"""MLX's affine quantization in torch, with the gradient that fine-tuning needs.

    python affine.py [FOLDER]

checks codes, scales, biases, packing and values against `mlx.core`, bit by bit, on random matrices
and on the matrices of FOLDER (a model in Hugging Face format). Only the check needs mlx.

The scheme is that of `quantize` in mlx/backend/cpu/quantized.cpp, for float16 weights: the scale
is computed in float32, moved so that the end of the range that is larger in magnitude falls on a
code, and stored as float16 only after the codes were chosen with it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

GROUP_SIZE = 64
BITS = (3, 4)
_LEAST_SCALE = 1e-7


@dataclass(frozen=True, slots=True)
class Affine:
    """A quantized matrix [rows, columns], before packing.

    Attributes:
        codes: int32 [rows, groups, GROUP_SIZE], 0 .. 2^bits - 1.
        scales: float16 [rows, groups].
        biases: float16 [rows, groups].
    """

    codes: Tensor
    scales: Tensor
    biases: Tensor

    def values(self) -> Tensor:
        """The weights [rows, columns] that MLX computes with in float32."""
        scales, biases = self.scales.float()[..., None], self.biases.float()[..., None]
        return (self.codes * scales + biases).flatten(1)

    def packed(self, bits: int) -> Tensor:
        """The codes as MLX stores them: a stream of bits, lowest first, in uint32."""
        codes = self.codes.flatten(1).cpu().numpy()
        stream = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(codes), -1)
        return torch.from_numpy(np.packbits(stream, axis=1, bitorder="little").view(np.uint32))


def _range(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and bias [rows, groups, 1] in float32 of weights [rows, groups, GROUP_SIZE]."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    low_is_edge = low.abs() > high.abs()
    scale = ((high - low) / (2**bits - 1)).clamp(min=_LEAST_SCALE)
    scale = torch.where(low_is_edge, scale, -scale)
    edge = torch.where(low_is_edge, low, high)
    steps = torch.round(edge / scale)
    moved = steps != 0
    scale = torch.where(moved, edge / torch.where(moved, steps, 1), scale)
    return scale, torch.where(moved, edge, 0)


def quantise(weight: Tensor, bits: int) -> Affine:
    """The result of `mlx.core.quantize(weight.astype(float16), 64, bits)`."""
    groups = weight.detach().half().float().unflatten(1, (-1, GROUP_SIZE))
    scale, bias = _range(groups, bits)
    codes = torch.round((groups - bias) / scale).clamp(0, 2**bits - 1).int()
    return Affine(codes, scale.squeeze(-1).half(), bias.squeeze(-1).half())


def fake_quantise(weight: Tensor, bits: int) -> Tensor:
    """The quantized weight's values, whose gradient is the weight's own (straight through)."""
    return weight + (quantise(weight, bits).values() - weight).detach()


def _cases(folder: Path | None) -> list[tuple[str, Tensor]]:
    """Matrices to compare on: random ones of every scale, the awkward ones, a model's own."""
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(64, 512, generator=rng)
    cases = [(f"normal x {scale:g}", noise * scale) for scale in (1e-7, 1e-4, 0.02, 1.0, 1e3)]
    sparse = noise * (torch.rand(noise.shape, generator=rng) < 0.02)
    ramp = torch.arange(512.0).repeat(64, 1)
    cases += [
        ("positive", noise.abs()),
        ("negative", -noise.abs()),
        ("far from zero", noise + 100),
        ("sparse", sparse),
        ("zero", torch.zeros(64, 512)),
        ("equal", torch.full((64, 512), -0.37)),
        ("ties", (ramp % 16) / 2 - 4),
    ]
    if folder is not None:
        tensors = load_file(folder / "model.safetensors")
        cases += [(name, value) for name, value in tensors.items() if value.ndim == 2]
    return cases


def _differences(weight: Tensor, bits: int) -> list[str]:
    """The parts in which a matrix's quantization is not MLX's."""
    import mlx.core as mx  # noqa: PLC0415 (only the check needs it)

    mine = quantise(weight, bits)
    half = mx.array(weight.half().numpy())
    codes, scales, biases = mx.quantize(half, group_size=GROUP_SIZE, bits=bits)
    widened = (scales.astype(mx.float32), biases.astype(mx.float32))
    values = mx.dequantize(codes, *widened, group_size=GROUP_SIZE, bits=bits)
    pairs = {
        "codes": (mine.packed(bits), codes),
        "scales": (mine.scales, scales),
        "biases": (mine.biases, biases),
        "values": (mine.values(), values),
    }
    return [name for name, (a, b) in pairs.items() if not np.array_equal(a.numpy(), np.array(b))]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    cases = _cases(parser.parse_args().folder)
    wrong = [
        f"{name} at {bits} bits: {', '.join(parts)}"
        for name, weight in cases
        for bits in BITS
        if (parts := _differences(weight, bits))
    ]
    print("\n".join(wrong) or f"{len(cases)} matrices at {BITS} bits: equal to MLX")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
