"""True if a text begins with BOS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: In the configuration of a folder made here: the token that a text begins with, or null.
BOS_KEY: Final = "asperf_bos"


def find_bos(folder: Path, tokenizer: Any, config: Mapping[str, Any]) -> int | None:
    """BOS if a text begins with it, else None.

    A configured tokenizer shows it by adding BOS. Without one, a text begins with the model's BOS,
    as in a GGUF file that is made from the folder.
    """
    if BOS_KEY in config:
        kept: int | None = config[BOS_KEY]
        return kept
    known = tokenizer.bos_token_id
    if known is not None and list(tokenizer.encode("a"))[:1] == [known]:
        return int(known)
    stated = config.get("bos_token_id")
    is_silent = not (folder / "tokenizer_config.json").exists()
    return stated if is_silent and type(stated) is int else None
