"""Peak memory of the engine's process while it scores a quant sweep of a large vocabulary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from models import LARGE_VOCABULARY, level_files, write_random_llama
from scored import score
from timing import table

from pytest_asperf.measure.ladder import PPL_N_CTX
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

_LEVELS: Final = ("F16", "Q8_0", "Q4_K_M")
_CHUNKS: Final = (4, 16)


def main() -> bool:
    """Print peak memory and its parts, and return whether more chunks leave it as it is."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        spec = write_random_llama(cache / "large-vocabulary.gguf", LARGE_VOCABULARY)
        files = level_files(spec, _LEVELS, cache=cache)
        peaks = [score(files, shipped_corpus(), chunks=chunks).peak_rss_bytes for chunks in _CHUNKS]
        sizes = sum(path.stat().st_size for path in files.values())
    logits = len(_LEVELS) * (PPL_N_CTX // 2) * LARGE_VOCABULARY.n_vocab * 4
    print("### Peak memory at a vocabulary of 150,000\n")
    totals = [(chunks, _mib(peak)) for chunks, peak in zip(_CHUNKS, peaks, strict=True)]
    print(table(("chunks", "peak RSS, MiB"), totals))
    parts = {
        "model files, mapped": sizes,
        "a chunk's logits, in each context's output buffer": logits,
        "the same in each context's compute buffer": logits,
    }
    parts["all else"] = max(peaks) - sum(parts.values())
    print(table(("part", "MiB"), [(name, _mib(size)) for name, size in parts.items()]))
    return max(peaks) < 1.1 * min(peaks)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f}"


if __name__ == "__main__":
    raise SystemExit(not main())
