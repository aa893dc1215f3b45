"""A Hugging Face `tokenizer.json` of byte-level BPE, as the lists that a GGUF file holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gguf import TokenType

from pytest_asperf.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class BpeVocabulary:
    """A byte-level BPE vocabulary: tokens by id as GPT-2 spells bytes, and merges in order."""

    tokens: tuple[str, ...]
    kinds: tuple[TokenType, ...]
    merges: tuple[str, ...]


def read_vocabulary(path: Path, tokenizer: Mapping[str, Any], *, n_vocab: int) -> BpeVocabulary:
    """The vocabulary of a `tokenizer.json`; ids below `n_vocab` without a token are unused."""
    _require_gpt2_splitting(path, tokenizer)
    model = tokenizer["model"]
    ids, kinds = _token_ids(path, model), {}
    for added in _list(path, tokenizer, "added_tokens"):
        match added:
            case {"id": int(number), "content": str(text), **rest}:
                ids[text] = number
                kinds[number] = (
                    TokenType.CONTROL if rest.get("special") is True else TokenType.USER_DEFINED
                )
            case _:
                raise _unusable(path, f"added token {str(added)[:60]} has no id or no content")
    texts = {number: text for text, number in ids.items()}
    if len(texts) < len(ids) or not all(0 <= number < n_vocab for number in texts):
        raise _unusable(path, f"its token ids are not distinct numbers below {n_vocab}")
    return BpeVocabulary(
        tokens=tuple(texts.get(number, f"[UNUSED{number}]") for number in range(n_vocab)),
        kinds=tuple(
            kinds.get(number, TokenType.NORMAL) if number in texts else TokenType.UNUSED
            for number in range(n_vocab)
        ),
        merges=tuple(_merge(path, item, ids) for item in _list(path, model, "merges")),
    )


def _require_gpt2_splitting(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """Refuse what llama.cpp's pre-tokenizer `gpt-2` would split differently, and so worsen PPL."""
    model, splitter = tokenizer.get("model"), tokenizer.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise _unusable(path, "it is not a BPE tokenizer")
    if model.get("byte_fallback") or model.get("ignore_merges") or model.get("dropout"):
        raise _unusable(path, "it uses byte_fallback, ignore_merges or dropout")
    if tokenizer.get("normalizer") is not None:
        raise _unusable(path, "it has a normalizer")
    match splitter:
        case {"type": "ByteLevel", "add_prefix_space": False, **rest} if rest.get(
            "use_regex", True
        ):
            return
        case _:
            raise _unusable(path, f"its pre_tokenizer is {str(splitter)[:100]}")


def _token_ids(path: Path, model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(n) is int for n in vocabulary.values()):
        raise _unusable(path, "its vocabulary is not a table of ids by token")
    return dict(vocabulary)


def _list(path: Path, table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise _unusable(path, f"its {key} is not a list")
    return value


def _merge(path: Path, item: object, ids: Mapping[str, int]) -> str:
    parts = item.split(" ") if isinstance(item, str) else item
    match parts:
        case [str(left), str(right)] if left in ids and right in ids and left + right in ids:
            return f"{left} {right}"
        case _:
            raise _unusable(path, f"the merge {str(item)[:60]!r} does not join two tokens to one")


def _unusable(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}",
        why="text would be split into other tokens than in training, which worsens every score",
        remedy="give a byte-level BPE tokenizer that splits text as GPT-2's does, or convert the "
        "model with llama.cpp's convert_hf_to_gguf.py and give the GGUF file",
    )
