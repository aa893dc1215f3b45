"""The exceptions of mlx and mlx-lm, as rejections."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .engine import RefusalError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_TEXT: Final = 600


@contextmanager
def refusing(kind: str) -> Iterator[None]:
    """Turn what mlx and mlx-lm raise into a refusal that quotes them."""
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
