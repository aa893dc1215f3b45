"""Train the byte-level BPE and turn the documents into token streams.

    python bpe.py --data build/train

Reads corpus.py's output; writes tokenizer.json and {stdlib,packages,heldout,seen}.bin.xz
(little-endian uint16). A document is `BOS text EOS`; heldout and seen are `BOS text`, as llama.cpp
scores them.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCAB = 2048
BOS, EOS = "<|bos|>", "<|eos|>"
BOS_ID, EOS_ID = 0, 1


def texts(path: Path) -> Iterator[str]:
    """The documents of one jsonl file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def train(documents: Iterator[str]) -> Tokenizer:
    """A BPE whose pre-tokenizer is GPT-2's, which llama.cpp has as "gpt-2"."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def encode(
    tokenizer: Tokenizer, documents: list[str]
) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """`BOS text EOS` for each document, end to end."""
    parts = [
        np.array([BOS_ID, *encoding.ids, EOS_ID], dtype="<u2")
        for i in range(0, len(documents), 512)
        for encoding in tokenizer.encode_batch_fast(documents[i : i + 512])
    ]
    return np.concatenate(parts)


def save(path: Path, ids: np.ndarray[tuple[int], np.dtype[np.uint16]]) -> None:
    """Compressed, since the streams travel to the training machine."""
    with lzma.open(path, "wb", preset=3) as file:
        file.write(ids.tobytes())
    print(f"{path.name}: {len(ids):,} tokens, {path.stat().st_size:,} bytes")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    data = parser.parse_args().data
    tokenizer = train(texts(data / "stdlib.jsonl"))
    tokenizer.save(str(data / "tokenizer.json"))
    for name in ("stdlib", "packages"):
        save(data / f"{name}.bin.xz", encode(tokenizer, list(texts(data / f"{name}.jsonl"))))
    for name in ("heldout", "seen"):
        ids = tokenizer.encode((data / f"{name}.txt").read_text(encoding="utf-8")).ids
        save(data / f"{name}.bin.xz", np.array([BOS_ID, *ids], dtype="<u2"))


if __name__ == "__main__":
    main()
