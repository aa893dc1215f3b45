"""The device that MLX computes on, the library that runs there, and the type it computes in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
import mlx_lm
from mlx.utils import tree_flatten

from . import mlx_compat as compat

if TYPE_CHECKING:
    from .engine import Facts

TYPE_NAMES: Final = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}


def has_gpu() -> bool:
    """True if MLX computes on a GPU by default."""
    return bool(mx.default_device() == mx.Device(mx.gpu))


def device_info() -> Facts:
    """Facts of the default device that JSON can carry."""
    known = compat.device_info()
    return {str(key): value for key, value in known.items() if isinstance(value, (str, int))}


def devices() -> list[Facts]:
    """The default device with its memory."""
    info = device_info()
    total = info.get("memory_size")
    room = info.get("max_recommended_working_set_size", total)
    return [
        {
            "name": "GPU" if has_gpu() else "CPU",
            "description": str(info.get("device_name", info.get("architecture", "unknown"))),
            "type": "GPU" if has_gpu() else "CPU",
            "memory_free_bytes": None if room is None else max(0, room - mx.get_active_memory()),
            "memory_total_bytes": total,
        }
    ]


def library_files() -> list[Path]:
    """The native code of mlx and mlx-lm's sources: either decides what runs."""
    core = Path(mx.__file__).parent
    native = [Path(mx.__file__), *core.glob("lib/*.so*"), *core.glob("lib/*.dylib")]
    native += core.glob("lib/*.metallib")
    return sorted({*native, *Path(mlx_lm.__file__).parent.rglob("*.py")})


def floating_type(model: Any) -> Any:
    """The type that is computed in: that of the parameters that are not packed."""
    types = [v.dtype for _, v in tree_flatten(model.parameters())]
    floating = [dtype for dtype in types if dtype in TYPE_NAMES]
    return max(set(floating), key=floating.count) if floating else types[0]
