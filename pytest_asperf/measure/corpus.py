"""The text that models are scored on and fed from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.text_file import UnreadableTextError, read_text
from pytest_asperf.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_asperf.config.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The part of a corpus that PPL is taken over: its first chunks, of `n_ctx` tokens each."""

    name: str
    sha256: str
    n_chunks: int
    n_chunks_total: int
    n_ctx: int

    def __str__(self) -> str:
        return (
            f"{self.name}, sha256 {self.sha256[:12]}, chunks 1 to {self.n_chunks} of "
            f"{self.n_chunks_total}, of {self.n_ctx} tokens"
        )


#: More than one message to a worker can carry of its tokens.
_MAX_CORPUS_BYTES: Final = 128 * 2**20


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text that models are scored on and fed from, all its line ends alike."""

    path: Path
    sha256: str
    text: str

    def section(self, chunks: Sequence[Sequence[int]], total: int) -> ScoredText:
        """The part of it that these chunks from its beginning are, of so many in total."""
        return ScoredText(self.path.name, self.sha256, len(chunks), total, len(chunks[0]))


def read_corpus(spec: ModelSpec, shipped: Path) -> Corpus:
    """The text that a model is scored on and fed from: its own, or the shipped one."""
    path = spec.corpus or shipped
    try:
        text = read_text(path, _MAX_CORPUS_BYTES)
    except UnreadableTextError as err:
        raise ModelError(
            f"the corpus {path} of {spec.name} {err}",
            remedy="name a UTF-8 text file",
        ) from err
    if not text.strip():
        raise ModelError(
            f"the corpus {path} of {spec.name} has no text in it",
            remedy="name a file with text in it",
        )
    return Corpus(path, hashlib.sha256(text.encode()).hexdigest(), text)
