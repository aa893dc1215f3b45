"""Replies of llama-cpp-python's own `Llama`, which continues from its last prompt's state.

Its users call it, and not the library below it: `Llama` finds the longest beginning that a prompt
shares with the last one, drops the rest from llama.cpp's memory and decodes the new tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import llama_cpp_compat as compat
from .engine import RefusalError
from .llama_cpp_batch import rows_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LlamaConversation:
    """A `Llama` with a model of its own; an error if the settings cannot be its arguments."""

    def __init__(
        self, path: str, settings: Mapping[str, Any], log: compat.LibraryLog, **arguments: Any
    ) -> None:
        if settings.get("flash_attn") == "auto":
            raise RefusalError(
                "settings", f"Llama of {compat.VERSION} has flash attention on or off, not auto"
            )
        if shares := settings.get("tensor_split"):
            arguments["tensor_split"] = [float(share) for share in shares.split("/")]
        names = settings.keys() & {"n_batch", "n_ubatch"}
        from llama_cpp import Llama  # noqa: PLC0415  # see llama_cpp_bindings

        log.attach()
        try:
            self._llama = Llama(
                path,
                n_gpu_layers=compat.gpu_layers(settings.get("n_gpu_layers")),
                flash_attn=compat.needs_flash_attention(settings),
                verbose=False,
                **{name: settings[name] for name in names},
                **arguments,
            )
        except (ValueError, TypeError) as error:
            raise RefusalError("context", f"Llama: {error}") from error

    @property
    def context(self) -> Any:
        """Its `llama_context`."""
        return self._llama.ctx

    def reply(
        self, prompt: Sequence[int], n_new: int
    ) -> tuple[list[int], list[NDArray[np.float32]]]:
        """The likeliest tokens after a prompt, and the rows of logits that they were chosen by."""
        tokens, rows = [], []
        try:
            for token in islice(self._llama.generate(prompt, temp=0.0), n_new):
                tokens.append(int(token))
                rows.append(rows_of(self.context, -1, self._llama.n_vocab())[0].copy())
        except (RuntimeError, ValueError) as error:
            raise RefusalError("decode", f"Llama: {error}") from error
        return tokens, rows

    def close(self) -> None:
        """Free context and model."""
        self._llama.close()
