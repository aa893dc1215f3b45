"""llama.cpp's binaries, run and read strictly: their exit status alone promises nothing."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from timing import Cost, Finished, PeerError, run

if TYPE_CHECKING:
    from pytest_asperf.config.workload import Workload

_ATTEMPTS: Final = 5
_ERROR: Final = re.compile(r"^[\d.]+ E .*", re.MULTILINE)
_FINAL: Final = re.compile(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)")
_LAST_LINE: Final = re.compile(r"^Same top p: ", re.MULTILINE)
_CHUNK: Final = re.compile(r"\[(\d+)\][\d.]+,")
_COUNT: Final = re.compile(r"(n_predict|n_drafted|n_accept) += (\d+)")
_DECODED: Final = re.compile(r"decoded +\d+ tokens in +[\d.]+ seconds, speed: +([\d.]+) t/s")
_NUMBER: Final = r"(-?[\d.]+)"
_LEVEL_PPL: Final = "PPL"
_DIVERGENCE: Final = {
    _LEVEL_PPL: rf"Mean PPL\(Q\) +: +{_NUMBER} ± +{_NUMBER}$",
    "ln PPL ratio": rf"Mean ln\(PPL\(Q\)/PPL\(base\)\) +: +{_NUMBER} ± +{_NUMBER}$",
    "PPL ratio": rf"Mean PPL\(Q\)/PPL\(base\) +: +{_NUMBER} ± +{_NUMBER}$",
    "KLD": rf"Mean +KLD: +{_NUMBER} ± +{_NUMBER}$",
}

#: Prints the processor's instructions that a library was compiled for, and its options.
_COMPILED_FOR: Final = """
import ctypes, re, sys
read = ctypes.CDLL(sys.argv[1]).llama_print_system_info
read.restype = ctypes.c_char_p
print(re.search("CPU : .*", read().decode()).group())
"""

#: A value and its ±.
Figure = tuple[float, float]
#: The output of `--kl-divergence` for a quantization.
Divergence = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class PplRun:
    """The output of `llama-perplexity`, and its cost."""

    ppl: float
    error: float
    n_chunks: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class DivergenceRun:
    """The output of `llama-perplexity --kl-divergence` for a quantization, and its cost."""

    ppl: float
    figures: Divergence
    cost: Cost


@dataclass(frozen=True, slots=True)
class SpeculativeRun:
    """The output of `llama-speculative-simple`."""

    n_predict: int
    drafted: int
    accepted: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Peers:
    """The tools of one build, all run with one thread.

    Attributes:
        folder: if they are.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Compare the instructions of both libraries: another set of them is another speed.

        Raises:
            PeerError: llama-cpp-python's library and the tools' are compiled for different ones.
        """
        binding = Path(str(distribution("llama-cpp-python").locate_file("llama_cpp/lib")))
        folders = {"llama-cpp-python": binding, "tools": self.folder}
        compiled = {
            name: run([sys.executable, "-c", _COMPILED_FOR, str(library)]).text.strip()
            for name, folder in folders.items()
            for library in [*folder.glob("libllama.so"), *folder.glob("libllama.dylib")]
        }
        if len(set(compiled.values())) > 1:
            sets = "; ".join(f"{name} has {text}" for name, text in compiled.items())
            raise PeerError(f"compile both with the same CMAKE_ARGS: {sets}")

    def perplexity(
        self, model: Path, corpus: Path, *, chunks: int | None, logits: Path | None = None
    ) -> PplRun:
        """Score a corpus; with `logits`, also write the distributions there."""
        limit = ["--chunks", str(chunks)] if chunks else []
        save = ["--save-all-logits", str(logits)] if logits else []
        process = self._perplexity(_FINAL, model, "-f", str(corpus), *limit, *save)
        text = process.text + process.log
        final, scored = _FINAL.search(text), _CHUNK.findall(text)
        if final is None or not scored or int(scored[-1]) != (chunks or len(scored)):
            raise PeerError(f"llama-perplexity: no estimate of {chunks} chunks: {text[-500:]}")
        return PplRun(float(final[1]), float(final[2]), len(scored), process.cost)

    def divergence(self, model: Path, logits: Path) -> DivergenceRun:
        """Compare a model with the distributions in a file."""
        compare = ["--kl-divergence", "--kl-divergence-base", str(logits)]
        process = self._perplexity(_LAST_LINE, model, *compare)
        text = process.text + process.log
        figures: Divergence = {}
        for name, pattern in _DIVERGENCE.items():
            found = re.findall(pattern, text, re.MULTILINE)
            if len(found) != 1:
                raise PeerError(f"--kl-divergence printed {len(found)} lines of {name}")
            value, error = map(float, found[0])
            figures[name] = (value, error)
        ppl, _ = figures.pop(_LEVEL_PPL)
        return DivergenceRun(ppl, figures, process.cost)

    def throughput_ns(self, model: Path, workload: Workload, *, flash_attn: str) -> int:
        """Return the nanoseconds of one repetition of `llama-bench`."""
        n_prompt = workload.n_tokens if workload.kind == "pp" else 0
        n_gen = workload.n_tokens if workload.kind == "tg" else 0
        sizes = ["-p", str(n_prompt), "-n", str(n_gen), "-d", str(workload.depth), "-r", "1"]
        command = [str(self.folder / "llama-bench"), "-m", str(model), "-t", "1", *sizes]
        done = run([*command, "-fa", flash_attn, "-o", "jsonl"])
        lines = done.text.splitlines()
        if len(lines) != 1:
            raise PeerError(f"llama-bench printed {len(lines)} results: {done.log[-500:]}")
        result = json.loads(lines[0])
        asked = {"n_prompt": n_prompt, "n_gen": n_gen, "n_depth": workload.depth, "n_threads": 1}
        differs = {key: result.get(key) for key, value in asked.items() if result[key] != value}
        if differs or len(result["samples_ns"]) != 1:
            raise PeerError(f"llama-bench ran something else than was asked: {differs}")
        return int(result["samples_ns"][0])

    def speculate(
        self, target: Path, draft: Path, prompt: str, *, k: int, n_tokens: int
    ) -> SpeculativeRun:
        """Run greedy speculation after a prompt, whose last line is not ended."""
        models = ["-m", str(target), "-md", str(draft), "-t", "1", "-td", "1"]
        how = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(k)]
        what = ["--temp", "0", "-n", str(n_tokens), "-c", "512", "--no-escape", "-p", prompt]
        tool = str(self.folder / "llama-speculative-simple")
        for _ in range(_ATTEMPTS):
            done = run([tool, *models, *how, "--spec-draft-p-min", "0", *what])
            text = done.text + done.log
            counts = dict(_COUNT.findall(text))
            speed = _DECODED.search(text)
            if speed and {"n_predict", "n_drafted", "n_accept"} <= counts.keys():
                return SpeculativeRun(
                    int(counts["n_predict"]),
                    int(counts["n_drafted"]),
                    int(counts["n_accept"]),
                    float(speed[1]),
                )
        raise PeerError(f"llama-speculative-simple left its output unfinished {_ATTEMPTS} times")

    def _perplexity(self, end: re.Pattern[str], model: Path, *arguments: str) -> Finished:
        """Run the tool, again if its output stops before `end`.

        Its log is written by a thread that it does not wait for: on a busy machine the last lines
        can be missing, with exit status 0.
        """
        tool = str(self.folder / "llama-perplexity")
        for _ in range(_ATTEMPTS):
            done = run([tool, "-m", str(model), "-c", "512", "-t", "1", "-tb", "1", *arguments])
            if error := _ERROR.search(done.text + done.log):
                raise PeerError(f"llama-perplexity: {error[0]}")
            if end.search(done.text + done.log):
                return done
        raise PeerError(f"llama-perplexity left its output unfinished {_ATTEMPTS} times")
