"""The differences of mlx-lm's versions, from 0.28 on, and of the mlx of their time; its device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
from mlx.utils import tree_flatten

from .engine import Facts, RefusalError
from .mlx_lm_library import mlx_lm, mlx_lm_generate

VERSION: Final = f"mlx-lm {mlx_lm.__version__} with mlx {mx.__version__}"


def device_info() -> Mapping[str, Any]:
    """Facts that mlx has about the device; on Linux its name alone."""
    known: Mapping[str, Any]
    if hasattr(mx, "device_info"):
        known = mx.device_info()
    elif mx.metal.is_available():
        known = mx.metal.device_info()  # of mlx before 0.30.6; fails without Metal
    else:
        known = {}
    return known


def quantize_cache(cache: list[Any], group_size: int, bits: int) -> None:
    """Quantize an empty cache in place, in those layers that can be.

    0.28.0 quantizes a cache that is longer than the start, later versions one that is not shorter:
    before the first token both do from a start of -1.
    """
    mlx_lm_generate.maybe_quantize_kv_cache(cache, -1, group_size, bits)


def cache_nbytes(cache: Sequence[Any]) -> int:
    """The bytes allocated for a cache, as its `nbytes` counts them from 0.31 on."""
    return sum(_nbytes(layer) for layer in cache)


def _nbytes(layer: Any) -> int:
    if hasattr(layer, "nbytes"):
        return int(layer.nbytes)
    if inner := getattr(layer, "caches", None):
        return sum(map(_nbytes, inner))
    held = [getattr(layer, name, None) for name in ("keys", "values", "cache")]
    return sum(int(v.nbytes) for _, v in tree_flatten(held) if isinstance(v, mx.array))


_MAX_TEXT: Final = 600


@contextmanager
def refusing(kind: str) -> Iterator[None]:
    """Turn errors of mlx and mlx-lm into an engine error that quotes them."""
    try:
        yield
    except RefusalError:
        raise
    # They raise ValueError, KeyError, TypeError, RuntimeError and OSError alike for a bad model.
    except Exception as err:
        text = quoted(err)
        is_memory = isinstance(err, RuntimeError) and "alloc" in text
        raise RefusalError("memory" if is_memory else kind, text) from err


def quoted(err: Exception) -> str:
    """Type and text of an exception, bounded."""
    return f"{type(err).__name__}: {err}"[:_MAX_TEXT]


TYPE_NAMES: Final = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}


def has_gpu() -> bool:
    """True if MLX computes on a GPU by default."""
    return bool(mx.default_device() == mx.Device(mx.gpu))


def device_facts() -> Facts:
    """Facts of the default device that JSON can carry."""
    known = device_info()
    return {str(key): value for key, value in known.items() if isinstance(value, (str, int))}


def devices() -> list[Facts]:
    """The default device with its memory."""
    info = device_facts()
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
    """The native code of mlx and mlx-lm's sources: both decide the computation."""
    core = Path(mx.__file__).parent
    native = [Path(mx.__file__), *core.glob("lib/*.so*"), *core.glob("lib/*.dylib")]
    native += core.glob("lib/*.metallib")
    return sorted({*native, *Path(str(mlx_lm.__file__)).parent.rglob("*.py")})


def floating_type(model: Any) -> Any:
    """The type of most parameters that are not packed."""
    types = [v.dtype for _, v in tree_flatten(model.parameters())]
    floating = [dtype for dtype in types if dtype in TYPE_NAMES]
    return max(set(floating), key=floating.count) if floating else types[0]
