"""The quant sweep on llama.cpp: PPL and KLD of each quantization against F16.

    `python ladder.py pytest_asperf/data/models/asperf-target pytest_asperf/data/corpus/heldout.txt`

Needs llama-cpp-python and pytest_asperf. The figures pair the same tokens: intervals are 95 % over
chunks. KLD is KL(F16 || quantization) in nats, mean over the scored tokens.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from pytest_asperf.modelfiles.convert import hf_to_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 512
LEVELS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
Floats = NDArray[np.float64]


def _ignore(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    del level, text, data


# Kept for the life of the process: llama.cpp calls it whenever it logs.
_QUIET = llama_cpp.llama_log_callback(_ignore)


class Scorer:
    """One GGUF on one thread, giving the log-probabilities of a chunk's second half."""

    def __init__(self, path: Path) -> None:
        model_params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = 1
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text: str) -> NDArray[np.int32]:
        """The whole text's ids, BOS first, as llama-perplexity reads it."""
        raw = text.encode()
        ids = (llama_cpp.llama_token * (len(raw) + 1))()
        add_special, parse_special = True, False
        count = llama_cpp.llama_tokenize(
            self.vocab, raw, len(raw), ids, len(ids), add_special, parse_special
        )
        return np.array(ids[:count], dtype=np.int32)

    def score(self, chunk: NDArray[np.int32]) -> Floats:
        """[256, vocab] log-probabilities for the tokens 256 .. 511."""
        with_data = True
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), with_data)
        batch = llama_cpp.llama_batch_init(CHUNK, 0, 1)
        batch.n_tokens = CHUNK
        for i, token in enumerate(chunk):
            batch.token[i], batch.pos[i] = int(token), i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= CHUNK // 2 - 1
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_batch_free(batch)
        rows = CHUNK // 2 + 1
        pointer = llama_cpp.llama_get_logits(self.context)
        logits = np.ctypeslib.as_array(pointer, shape=(rows, self.n_vocab))[:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        logp: Floats = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logp


def files(folder: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """F16 and every quantization, made in `work`."""
    f16 = work / "F16.gguf"
    hf_to_gguf(folder, f16)
    yield "F16", f16
    for level in LEVELS:
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{level}")
        params.nthread = 1
        path = work / f"{level}.gguf"
        if llama_cpp.llama_model_quantize(str(f16).encode(), str(path).encode(), params) != 0:
            raise RuntimeError(f"cannot quantize to {level}")
        yield level, path


def mean_interval(values: Floats) -> tuple[float, float]:
    """Mean over chunks and the half width of its 95 % interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / len(values) ** 0.5)


def measure(scorers: dict[str, Scorer], chunks: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Mean NLL and KLD, each [chunks, quantizations]."""
    nll = np.zeros((len(chunks), len(scorers)))
    kld = np.zeros_like(nll)
    for i, chunk in enumerate(chunks):
        truth = chunk[CHUNK // 2 :, None]
        base: Floats | None = None
        for j, scorer in enumerate(scorers.values()):
            logp = scorer.score(chunk)
            base = logp if base is None else base
            nll[i, j] = -np.take_along_axis(logp, truth, axis=1).mean()
            kld[i, j] = (np.exp(base) * (base - logp)).sum(axis=1).mean()
    return nll, kld


def report(names: list[str], nll: Floats, kld: Floats) -> None:
    """The table, and the paired steps between neighbours."""
    print(f"chunks {len(nll)}, scored tokens {len(nll) * CHUNK // 2}")
    print("| quantization | PPL | against F16, % | KLD |\n|---|---|---|---|")
    for j, name in enumerate(names):
        mean, half = mean_interval(nll[:, j] - nll[:, 0])
        low, mid, high = (100 * np.expm1(mean + d) for d in (-half, 0.0, half))
        divergence, width = mean_interval(kld[:, j])
        print(
            f"| {name} | {np.exp(nll[:, j].mean()):.4f} | {mid:+.3f} [{low:+.3f}, {high:+.3f}]"
            f" | {divergence:.5f} ± {width:.5f} |"
        )
    for j in range(1, len(names) - 1):
        steps = [mean_interval(x[:, j + 1] - x[:, j]) for x in (nll, kld)]
        text = ", ".join(f"{mean:+.5f} ± {half:.5f}" for mean, half in steps)
        print(f"{names[j]} -> {names[j + 1]}: NLL and KLD {text}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--chunks", type=int, default=0, help="evenly spread; 0 scores all")
    args = parser.parse_args()
    llama_cpp.llama_log_set(_QUIET, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as work:
        scorers = {name: Scorer(path) for name, path in files(args.folder, Path(work))}
        ids = scorers["F16"].tokenize(args.corpus.read_text(encoding="utf-8"))
        chunks = ids[: len(ids) // CHUNK * CHUNK].reshape(-1, CHUNK).copy()
        chunks[:, 0] = llama_cpp.llama_vocab_bos(scorers["F16"].vocab)
        if args.chunks:
            chunks = chunks[np.linspace(0, len(chunks) - 1, args.chunks).astype(int)]
        report(list(scorers), *measure(scorers, chunks))


if __name__ == "__main__":
    main()
