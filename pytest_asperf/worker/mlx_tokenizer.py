"""A folder's tokenizer, and the token that its texts begin with."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from .mlx_compat import refusing
from .mlx_lm_library import mlx_lm

_CONTENT: Final = "tokenizer.json"
_CONFIGURATION: Final = "tokenizer_config.json"
#: transformers 5's name for a tokenizer that is nothing but its `tokenizer.json`.
_AS_IT_IS: Final = "TokenizersBackend"


class BareTokenizer:
    """A `tokenizer.json` as transformers' PreTrainedTokenizerFast has it if it has nothing else."""

    bos_token_id = None

    def __init__(self, content: Path) -> None:
        self._content = content
        self._tokenizer = Tokenizer.from_file(str(content))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def save_pretrained(self, folder: Path) -> None:
        """Copy it."""
        shutil.copy(self._content, folder)

    def get_vocab(self) -> Mapping[str, int]:
        """The ids by token, added ones too."""
        vocabulary: Mapping[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary


def load_tokenizer(folder: Path) -> Any:
    """A folder's tokenizer; if it is not configured, as its `tokenizer.json` has it.

    For such a folder, older versions of transformers guess a class by the model's type, which adds
    tokens that the model does not have, or fails for want of them. Folders that transformers 5
    wrote name a class that is `tokenizer.json` as it is, and that transformers 4 does not have.
    """
    if _is_bare(folder):
        return BareTokenizer(folder / _CONTENT)
    if (configured := folder / _CONFIGURATION).exists():
        named = json.loads(configured.read_text("utf-8"))
        if isinstance(named, dict) and named.get("tokenizer_class") == _AS_IT_IS:
            import transformers  # noqa: PLC0415  # see mlx_lm_library

            if not hasattr(transformers, _AS_IT_IS):
                return transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return mlx_lm.utils.load_tokenizer(folder)


@contextmanager
def own_tokenizer(source: Path) -> Iterator[None]:
    """Have mlx-lm's conversion load and save a source's tokenizer as it is loaded here.

    mlx-lm guesses a class for one that is not configured, and configures the copy.
    """
    whole = mlx_lm.utils.load_tokenizer
    if _is_bare(source):
        mlx_lm.utils.load_tokenizer = lambda *_args, **_kwargs: load_tokenizer(source)
    try:
        yield
    finally:
        mlx_lm.utils.load_tokenizer = whole


def _is_bare(folder: Path) -> bool:
    return (folder / _CONTENT).exists() and not (folder / _CONFIGURATION).exists()


class MlxTokenizer:
    """A model's tokenizer, which is loaded at its first use."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._folder, self._config = folder, config

    @cached_property
    def _loaded(self) -> Any:
        with refusing("load"):
            return load_tokenizer(self._folder)

    @cached_property
    def bos(self) -> int | None:
        """The token that texts begin with."""
        with refusing("tokenize"):
            return _find_bos(self._folder, self._loaded, self._config)

    @property
    def n_vocab(self) -> int:
        """The number of its tokens."""
        return len(self._loaded.get_vocab())

    def ids(self, text: str) -> list[int]:
        """The ids of a text, BOS first if it begins with one."""
        with refusing("tokenize"):
            ids = [int(i) for i in self._loaded.encode(text, add_special_tokens=False)]
        return ids if self.bos is None else [self.bos, *ids]


def _find_bos(folder: Path, tokenizer: Any, config: Mapping[str, Any]) -> int | None:
    """BOS if a text begins with it, otherwise None.

    A configured tokenizer shows it by adding BOS. Without one, a text begins with the model's BOS,
    as in a GGUF file that is made from the folder.
    """
    known = tokenizer.bos_token_id
    if known is not None and list(tokenizer.encode("a"))[:1] == [known]:
        return int(known)
    stated = config.get("bos_token_id")
    is_silent = not (folder / _CONFIGURATION).exists()
    return stated if is_silent and type(stated) is int else None
