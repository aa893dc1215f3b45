"""llama.cpp through a folder of its own binaries, for people who ship those.

Each timed run is a process: it starts, loads the model, warms itself up, and is timed once by its
own clock. llama-bench uses random tokens, so only the number of the requested ones counts. Scores
are those that llama-perplexity saves of a text; it accepts no tokens.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .engine import Facts, LoadedModel, RefusalError, Timing, files_sha256, require_context
from .printed.engine_log import (
    adds_bos,
    buffers_mib,
    context_facts,
    context_length,
    layer_counts,
    model_counts,
)
from .printed.metal_log import metal_facts
from .printed.speculation_log import SpeculationReader, SpeculationRun
from .rpc_remote import Placement, Remote, Remotes
from .saved_scores import PROGRAM, SavedScores, Text
from .tool_process import OPTIONS, Bench, Toolbox, ToolRun
from .tool_process import PROGRAM as BENCH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .printed.bench_rows import BenchRow


_QUANTIZE: Final = "llama-quantize"
_MAX_TEXT: Final = 200
#: Requests that these binaries do not support, with the engines that do.
_CANNOT: Final = {
    "first_token": "no program of llama.cpp times the first token by itself; pp512 times the "
    "prompt, and the engine llama_cpp times TTFT",
    "logits": "llama-bench shows no logits; those that llama-perplexity computes of a few tokens "
    "are looked at instead, at each load; the engine llama_cpp shows those of each run",
    "step_ns": "llama-bench times a run as a whole; the engine llama_cpp times each step",
    "slow_by": "a program of llama.cpp cannot be slowed by a share; the engines llama_cpp and "
    "scripted can",
}
#: A text that is scored once a load, to check that the model computes numbers: two chunks of it are
#: needed.
_PROBE: Final = "def area(width, height):\n    return width * height\n" * 8
_PROBE_N_CTX: Final = 16
_VERSION: Final = re.compile(r"version: (.+)")
_COMMIT: Final = re.compile(r"\b(?:commit )?([0-9a-f]{7,40})\)")
_DEVICE: Final = re.compile(r"^ +(\S+): (.+) \((\d{1,9}) MiB, (\d{1,9}) MiB free\)", re.MULTILINE)
_THREADS: Final = re.compile(r"--threads <n> +\(default: (\d{1,5})\)")


class LlamaToolsEngine:
    """The engine: binaries, and the texts that were tokenised."""

    def __init__(self, folder: str = "") -> None:
        if not Path(folder).is_dir() or not folder:
            raise RefusalError("tools", f"there is no folder {folder!r} of llama.cpp's binaries")
        self._tools = Toolbox(Path(folder))
        self._remotes = Remotes(folder)
        self._texts: list[Text] = []

    def describe(self) -> Facts:
        """Version, devices and a hash of the binaries."""
        facts = self.facts_of(BENCH)
        self._tools.path(PROGRAM)  # each load scores a text
        cannot = dict(_CANNOT)
        try:
            self._tools.path(_SPECULATE)
        except RefusalError as error:
            cannot["speculate"] = str(error)
        return {**facts, "engine": "llama_tools", "cannot": cannot}

    def facts_of(self, program: str) -> Facts:
        """The facts of a binary's build, and a hash of all binaries."""
        folder = self._tools.folder
        version = self._version(program)
        commit = _COMMIT.search(version)
        threads = _THREADS.search(self._tools.help(program))
        programs = [path for path in sorted(folder.glob("llama-*")) if path.is_file()]
        return {
            "library": "llama.cpp tools",
            "version": version,
            "llama_version": version,
            "llama_commit": commit[1] if commit else None,
            "ggml_version": None,
            "ggml_commit": None,
            "library_path": str(folder),
            "library_sha256": files_sha256(sorted({*_resolved(programs), *_libraries(folder)})),
            "tools": [path.name for path in programs],
            **self._devices(program),
            "default_threads": int(threads[1]) if threads else None,
        }

    def _version(self, program: str) -> str:
        """Version, build and commit; `unknown` for a build made outside a checkout."""
        if "--version" not in self._tools.help(program):
            return "unknown"
        run = self._tools.run(program, "--version")
        version = _VERSION.search("\n".join([run.output, *run.log]))
        return version[1].strip()[:_MAX_TEXT] if version else "unknown"

    def _devices(self, program: str) -> Facts:
        """The devices, and Metal's own lines about its GPU when they are listed."""
        metal: Facts = {}
        devices: list[Facts] = [{"name": "CPU", "description": platform.machine(), "type": "CPU"}]
        if "--list-devices" in self._tools.help(program):
            listed = self._tools.run(program, "--list-devices")
            devices += [
                {
                    "name": name[:_MAX_TEXT],
                    "description": description[:_MAX_TEXT],
                    "type": "GPU",
                    "memory_total_bytes": int(total) * 2**20,
                    "memory_free_bytes": int(free) * 2**20,
                }
                for name, description, total, free in _DEVICE.findall(listed.output)
            ]
            metal = metal_facts(listed.log)
        return {"devices": devices, "metal": metal}

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Load a GGUF file with llama-bench, for its facts."""
        for key, value in settings.items():
            if key in _CANNOT and value:
                raise RefusalError("unsupported", _CANNOT[key])
            if key not in {*OPTIONS, "slow_by", "remote"}:
                raise RefusalError("unsupported", f"these binaries have no setting {key}")
        address = settings.get("remote")
        remote = self._remotes.at(address) if address else None
        return LlamaToolsModel(self._tools, path, settings, self._texts, remote)

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Quantize a GGUF file with llama-quantize."""
        run = self._tools.start(_QUANTIZE, source, target, str(recipe["ftype"]))
        try:
            run.finish()
        except RefusalError as err:
            raise RefusalError("quantize", str(err)) from err
        if not Path(target).is_file() or not Path(target).stat().st_size:
            raise RefusalError("quantize", str(run.failure("exited with 0 and wrote no file")))


class LlamaToolsModel(LoadedModel):
    """A GGUF file that each request loads again; `texts` are shared by all models of the engine."""

    def __init__(
        self,
        tools: Toolbox,
        path: str,
        settings: dict[str, Any],
        texts: list[Text],
        remote: Remote | None = None,
    ) -> None:
        self._tools = tools
        self.path = path
        self.remote = remote
        self._placement = Placement(tools, remote)
        self._settings = {key: value for key, value in settings.items() if key in OPTIONS}
        self._texts = texts
        self._bench = Bench(tools, path, self._settings)
        self._scores: SavedScores | None = None
        self._scored: Text | None = None
        self.context: Facts = {}
        self.facts: Facts = {"n_ctx_train": 1}
        started_ns = time.perf_counter_ns()
        try:
            row, cells, run = self._measure(1, 0, 0, "--no-warmup")
        except RefusalError as err:
            # A crash is a crash at any time; a program that ends by itself reports that it cannot
            # load.
            kind = "load" if "exited with status" in str(err) else err.kind
            raise RefusalError(kind, str(err)) from err
        self.facts = self._describe(row, cells, run, time.perf_counter_ns() - started_ns)
        self.facts["logits_seen"] = self._look_at_logits()

    def _describe(self, row: BenchRow, cells: Facts, run: ToolRun, load_ns: int) -> Facts:
        log = run.log
        info = model_counts(log)
        if missing := {"n_layer", "n_ctx_train", "n_vocab"} - info.keys():
            raise run.failure(f"did not log {', '.join(sorted(missing))}")
        return {
            "description": row.model_type[:_MAX_TEXT],
            "n_params": cells["model_n_params"],
            "size_bytes": row.model_bytes,
            "n_vocab": info["n_vocab"],
            "n_ctx_train": info["n_ctx_train"],
            "add_bos": adds_bos(log),
            **layer_counts(log, info["n_layer"]),
            "buffers_mib": buffers_mib(log),
            "threads": int(cells["n_threads"]),
            "build": row.build,
            "tokens": "random",
            "loads_each_run": True,
            "log_probabilities": True,
            "load_ns": load_ns,
            **({"remote": self.remote.greeting} if self.remote else {}),
        }

    def _measure(
        self, n_prompt: int, n_gen: int, depth: int, *options: str
    ) -> tuple[BenchRow, Facts, ToolRun]:
        """Run llama-bench on the model's device; an error if it ran on another one."""
        if self.remote:
            self.close()  # a server has one client at a time
        placed = self._placement
        with placed.watched() as before:
            options = (*placed.options(BENCH), *options)
            row, cells, run = self._bench.measure(
                n_prompt, n_gen, depth, *options, watch=placed.watch
            )
            n_vocab = self.facts.get("n_vocab", 0)
            placed.require(run, before, n_vocab, of_target=n_gen or 1)
        return row, cells, run

    def _look_at_logits(self) -> str:
        """Score a few tokens: an error if the model's logits are not numbers."""
        scores = self._scores_of(_PROBE, _PROBE_N_CTX)
        try:
            n_rows = len(scores.next_chunk())
        finally:
            scores.close()
        return f"{PROGRAM}'s of {n_rows} tokens; {BENCH} shows none of the timed runs"

    def tokenize(self, text: str) -> list[int]:
        """The tokens that llama-perplexity makes of a text."""
        # Chunks of one token leave none over; the tokens come before anything is scored.
        arguments = ("-m", self.path, "-ngl", "0", "-b", "1", "--no-warmup")
        saved = SavedScores(self._tools, arguments, text, 1)
        saved.close()
        self._texts[:] = [*(known for known in self._texts if known.text != text)]
        self._texts.append(Text(text, saved.tokens))
        return list(saved.tokens)

    def prompt(self, tokens: Sequence[int], depth: int, _n_ctx: int) -> Timing:
        """Time a prompt of as many random tokens, at that depth."""
        return self._timed(len(tokens), depth, n_gen=0)

    def generate(
        self, tokens: Sequence[int], depth: int, _n_ctx: int, _sampled: str = ""
    ) -> Timing:
        """Time the generation of as many tokens, at that depth; random ones are fed."""
        return self._timed(len(tokens), depth, n_gen=len(tokens) - depth)

    def first_token(self, _tokens: Sequence[int], _n_ctx: int) -> Timing:
        """Raise: no binary of llama.cpp times it."""
        raise RefusalError("unsupported", _CANNOT["first_token"])

    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Log-probabilities of a chunk with a minimum, as llama-perplexity saves them."""
        scores, index = self._seek(tokens, first)
        if index < scores.n_done:  # an earlier request has passed it
            self.close()
            scores, index = self._seek(tokens, first)
        while scores.n_done < index:
            self._next_chunk(scores)
        return self._next_chunk(scores)

    def nll(self, tokens: Sequence[int], first: int) -> list[float]:
        """NLL of a chunk. Chunks scored on the way are kept, so that any order is cheap."""
        scores, index = self._seek(tokens, first)
        while scores.n_done <= index:
            self._next_chunk(scores)
        nll: list[float] = scores.nll[index].tolist()
        return nll

    def _next_chunk(self, scores: SavedScores) -> NDArray[np.float32]:
        rows = scores.next_chunk()
        self.context = _context(scores.run.log, self._settings, self.facts["threads"])
        return rows

    def speculate(self, draft: LlamaToolsModel, prompt: str, n_new: int, k: int) -> Facts:
        """Generate with a draft by llama-speculative-simple."""
        arguments = [*self._common(self._settings), "-md", draft.path]
        placement = Placement(self._tools, self.remote, draft.remote)
        n_vocab = self.facts["n_vocab"]
        return speculate(placement, arguments, prompt, n_new=n_new, k=k, n_vocab=n_vocab)

    def _common(self, settings: Facts) -> list[str]:
        """Model and settings as options of the binaries other than llama-bench."""
        options = ((OPTIONS[key][1], str(value)) for key, value in settings.items())
        return ["-m", self.path, *(part for option in options if option[0] for part in option)]

    def close(self) -> None:
        """End the program that is running."""
        if self._scores is not None:
            self._scores.close()
        self._scores, self._scored = None, None

    def _seek(self, tokens: Sequence[int], first: int) -> tuple[SavedScores, int]:
        """The run over a text that was tokenised, started if need be; which chunk of it it is."""
        n = len(tokens)
        require_context(n, self.facts)
        if first != n // 2:
            raise RefusalError(
                "unsupported", f"{PROGRAM} scores the second half of a chunk, not from {first} on"
            )
        scores = self._scores if self._scores and self._scores.n_ctx == n else None
        for text in self._texts:
            running = scores if text is self._scored else None
            index = text.chunk(tokens, running.n_done if running else 0)
            if index is not None:
                return running or self._start(text, n), index
        raise RefusalError(
            "unsupported",
            f"{PROGRAM} scores texts and accepts no tokens: these {n} are not a chunk of a text "
            "that was tokenised before; the engine llama_cpp scores any",
        )

    def _start(self, text: Text, n: int) -> SavedScores:
        self.close()
        scores = self._scores_of(text.text, n)
        if scores.tokens != text.tokens[: len(scores.tokens)]:
            scores.close()
            raise RefusalError("tokenize", "the models make different tokens of the text")
        self._scores, self._scored = scores, text
        return scores

    def _scores_of(self, text: str, n: int) -> SavedScores:
        settings = self._settings
        n_batch = min(settings.get("n_batch", n), n)
        n_ubatch = min(settings.get("n_ubatch", 512), n_batch)
        arguments = self._common(settings)
        arguments += ["-b", str(n_batch), "-ub", str(n_ubatch), "-lv", "4"]
        if "--fit" in self._tools.help(PROGRAM):
            arguments += ["--fit", "off"]  # it would change a default setting
        self._placement.greet()
        arguments += self._placement.options(PROGRAM)
        return SavedScores(self._tools, arguments, text, n, on_server=self.remote is not None)

    def _timed(self, n: int, depth: int, *, n_gen: int) -> Timing:
        require_context(n, self.facts)
        row, cells, run = self._measure(0 if n_gen else n - depth, n_gen, depth)
        self.context = _context(run.log, cells, int(cells["n_threads"]))
        return Timing(row.n_tokens, row.samples_ns[0], row.samples_ns, None)


def _resolved(paths: Iterable[Path]) -> set[Path]:
    return {path.resolve() for path in paths}


def _libraries(folder: Path) -> set[Path]:
    """The libraries next to the binaries, or in an installation's `lib`."""
    places = (folder, folder.parent / "lib")
    files = _resolved(path for place in places for path in place.glob("lib*") if path.is_file())
    return {path for path in files if ".so" in path.name or path.suffix == ".dylib"}


def _context(log: list[str], settings: Facts, threads: int) -> Facts:
    """Settings of the context by the log, otherwise as they were set."""
    made = {"n_ctx": context_length(log), "threads": threads}
    return made | context_facts(log, settings)


Reply = dict[str, Any]

_SPECULATE: Final = "llama-speculative-simple"
#: A thread of its own empties the log of results, and now and then the program ends before it has
#: (build 1 of 0.5.0-dev: 2 to 4 of 40 runs, with exit status 0). Such a run is repeated, also if
#: only the log's end is missing, the target's total time: the counts are checked by what it has.
_ATTEMPTS: Final = 4


def speculate(
    placement: Placement, arguments: Sequence[str], prompt: str, *, n_new: int, k: int, n_vocab: int
) -> Reply:
    """Generate greedily with a draft, once; the last round may go past `n_new` tokens.

    The arguments name both models.

    The program rounds `elapsed_ns` of the decode phase to 1 ms. `n_accepted` is None if the target
    replays accepted tokens from checkpoints: the program counts those as accepted again.
    """
    tools = placement.tools
    if "--spec-draft-n-max" not in tools.help(_SPECULATE):
        raise RefusalError(
            "tools", f"this build's {_SPECULATE} has other options than asperf supports"
        )
    options = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(k)]
    # With the log that lists the buffers on a server.
    options += ["--temp", "0", "-n", str(n_new), "-lv", "4"]
    for _ in range(_ATTEMPTS):
        with placement.watched() as before:
            placed = placement.options(_SPECULATE, drafts=True)
            command = (*arguments, *options, *placed)
            run = tools.start_on(_SPECULATE, prompt, *command, watch=placement.watch)
            run.finish()
            reader = SpeculationReader()
            for line in run.log:
                reader.feed(line)
            runs = reader.runs()
            counted = runs[-1] if runs else None
            if counted is not None:
                steps = {"of_target": counted.rounds, "of_draft": counted.n_drafted}
                placement.require(run, before, n_vocab, **steps)
                if counted.total_s is not None:
                    break
    counts = _checked(run, counted, k)
    if counts.decoded is None:
        raise run.failure("exited with 0 and timed nothing")
    return {
        "n_emitted": counts.n_predict,
        "n_drafted": counts.n_drafted,
        "n_accepted": None if counts.uses_checkpoints else counts.n_accept,
        "elapsed_ns": round(counts.decoded[1] * 1e9),
        "uses_checkpoints": counts.uses_checkpoints,
        "text": run.output.strip(),
    }


def _checked(run: ToolRun, counts: SpeculationRun | None, k: int) -> SpeculationRun:
    if counts is None:
        raise run.failure("exited with 0 and counted nothing")
    if counts.k != k:
        raise run.failure(f"got --draft {k} and reports {counts.k} drafted tokens a round")
    if not (counts.n_predict > 0 and 0 <= counts.n_accept <= counts.n_drafted):
        raise run.failure(
            f"counted {counts.n_accept} accepted of {counts.n_drafted} drafted tokens and "
            f"{counts.n_predict} emitted"
        )
    if counts.n_drafted > k * counts.rounds:
        raise run.failure(f"counted {counts.n_drafted} drafted tokens in {counts.rounds} rounds")
    if counts.own_contradiction:
        raise run.failure(counts.own_contradiction)
    return counts
