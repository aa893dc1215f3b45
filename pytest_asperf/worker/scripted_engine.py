"""An engine that follows the script in its model file: for tests of everything around an engine.

A model is a JSON file (see `pytest_asperf.testing.ScriptedModel`). Its timings are the script's,
never a clock's, and its faults are real ones: a signal, an endless wait, junk on the pipe.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .engine import Facts, LoadedModel, LogitRow, RefusalError, Timing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: By how much the next byte's logit is raised: its PPL is then about 60, among 257 tokens.
_FAVOUR: Final = 2.0


class ScriptedEngine:
    """The engine: it has no library and no device."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()

    def describe(self) -> Facts:
        """Facts of the same names as a real engine's."""
        return {
            "engine": "scripted",
            "library": "scripted",
            "version": os.environ.get("ASPERF_SCRIPT_VERSION", "1"),
            "devices": [{"name": "SCRIPT", "description": "a script", "type": "CPU"}],
            "default_threads": 1,
        }

    def load(self, path: str, settings: dict[str, Any]) -> ScriptedModel:
        """Read the script."""
        script = json.loads(Path(path).read_text("utf-8"))
        model = ScriptedModel(script, settings, partial(self._next_run, path))
        model.begin("load")
        return model

    def _next_run(self, path: str) -> int:
        """How many runs a model file has had in this process, and count one more."""
        run = self._runs[path]
        self._runs[path] += 1
        return run

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Write a script whose logits have the noise of a quantization."""
        script = json.loads(Path(source).read_text("utf-8"))
        script["noise"] = script.get("noise_by_ftype", {}).get(str(recipe["ftype"]), 0.0)
        Path(target).write_text(json.dumps(script), "utf-8")


class ScriptedModel(LoadedModel):
    """A model with a vocabulary of bytes, and BOS after them."""

    def __init__(
        self, script: dict[str, Any], settings: dict[str, Any], next_run: Callable[[], int]
    ) -> None:
        self._script = script
        self._next_run = next_run
        self._n_vocab = 257
        self.n_held: int | None = None
        self._tokens: list[int] = []
        self._per_token_ns = 0
        self._is_examined = False
        is_unseen = script.get("faults", {}).get("logits") == "unseen"
        self._is_unseen = is_unseen or find_spec("numpy") is None
        self._slow_by = settings.get("slow_by", 0.0)
        self._of_build = float(os.environ.get("ASPERF_SCRIPT_COST", "1"))
        self._random = random.Random(os.environ.get("ASPERF_SCRIPT_SEED"))  # noqa: S311
        self._is_batched = settings.get("n_ubatch") != 1
        self.facts: Facts = {
            "description": "scripted",
            "n_params": script.get("n_params", 1000),
            "size_bytes": script.get("size_bytes", 2000),
            "n_vocab": self._n_vocab,
            "n_layers": 1,
            "n_ctx_train": script.get("n_ctx_train", 4096),
            "add_bos": True,
            "recurrent": False,
            "layers_offloaded": script.get("layers_offloaded", 0),
            "buffers_mib": {"model": {"SCRIPT": 1.0}},
            "threads": settings.get("threads", 1),
            "slow_by": self._slow_by,
            "load_ns": round(script.get("load_ns", 1_000_000) * (1 + self._slow_by)),
            "bytes_per_token": script.get("bytes_per_token"),
        }

        self.context: Facts = {
            "n_ctx": 0,
            "type_k": settings.get("type_k", "f16"),
            "type_v": settings.get("type_v", "f16"),
            "flash_attn": script.get("flash_attn", "off"),
            "threads": self.facts["threads"],
            "buffers_mib": {},
        }

    def begin(self, operation: str) -> None:
        """Note an operation, and do the script's delay and fault for it."""
        if self._is_examined:
            return
        if log := self._script.get("log"):
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(f"{operation} {os.getpid()} {time.monotonic_ns()}\n")
        time.sleep(self._script.get("takes_s", {}).get(operation, 0.0) * (1 + self._slow_by))
        kind = self._script.get("faults", {}).get(operation)
        if kind == "crash":
            sys.stderr.write("scripted: about to crash\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        elif kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "hang":
            time.sleep(3600)
        elif kind == "garbage":
            reply_fd = int(sys.argv[-2])
            os.write(reply_fd, b"this is no message\n")
        elif kind == "refuse":
            raise RefusalError("scripted", f"the script cannot {operation}")

    def tokenize(self, text: str) -> list[int]:
        """BOS and the text's bytes."""
        self.begin("tokenize")
        return [256, *text.encode()]

    def prompt(self, tokens: Sequence[int], depth: int, n_ctx: int) -> Timing:
        """The script's time for a prompt."""
        self.begin("prompt")
        return self._timing(tokens, depth, n_ctx, self._script.get("pp_ns_per_token", 10_000))

    def generate(self, tokens: Sequence[int], depth: int, n_ctx: int, _sampled: str = "") -> Timing:
        """The script's time for a generation."""
        self.begin("generate")
        return self._timing(tokens, depth, n_ctx, self._script.get("tg_ns_per_token", 1_000_000))

    def first_token(self, tokens: Sequence[int], n_ctx: int) -> Timing:
        """The script's time for a prompt."""
        return self.prompt(tokens, 0, n_ctx)

    def _timing(
        self, tokens: Sequence[int], depth: int, n_ctx: int, costs: float | list[float]
    ) -> Timing:
        self._tokens = list(tokens)
        if n_ctx > self.facts["n_ctx_train"]:
            raise RefusalError("context", f"{n_ctx} tokens are more than the script's context")
        n_tokens = len(tokens) - depth
        if not self._is_examined:
            self._per_token_ns = self._next_cost(costs)
        per_token = self._per_token_ns
        self.context["n_ctx"] = n_ctx
        steps_ns = (per_token,) * n_tokens
        return Timing(n_tokens, per_token * n_tokens, steps_ns, self._last_row(tokens))

    def _next_cost(self, costs: float | list[float]) -> int:
        run = self._next_run()
        cost = costs[run % len(costs)] if isinstance(costs, list) else costs
        noise = math.exp(self._random.gauss(0.0, self._script.get("spread", 0.0)))
        taken_ns: float = cost * (1 + self._slow_by) * self._of_build * noise
        return round(taken_ns)

    def _last_row(self, tokens: Sequence[int]) -> LogitRow | None:
        n, peak = self._n_vocab, (sum(tokens) + len(tokens)) % 31 / 2
        rows = {
            "nan": LogitRow(n, n, 0, None),
            "inf": LogitRow(n, 0, 1, peak),
            "overflow": LogitRow(n, 0, 0, 1e31),
            "stale": LogitRow(n, 0, 0, 1.0),
            "flat": LogitRow(n, 0, 0, 0.0, is_flat=True),
            "unseen": None,
        }
        return rows.get(self._script.get("faults", {}).get("logits"), LogitRow(n, 0, 0, peak))

    def left_by_run(self) -> ScriptedModel:
        """Itself, as it has no memory; until `recompute`, runs repeat the last one's time."""
        self._is_examined = not self._is_unseen
        return self

    def row(self, position: int) -> NDArray[np.float32] | None:
        """A row that depends on all tokens up to a position."""
        return None if self._is_unseen else self._row(self._tokens[: position + 1])

    def recompute(
        self, tokens: Sequence[int], positions: Sequence[int]
    ) -> Iterator[NDArray[np.float32]]:
        """The same rows of any text."""
        self._is_examined = False
        return (self._row(tokens[: position + 1]) for position in positions)

    def together(
        self,
        sequences: Sequence[Sequence[int]],
        n_decoded: Sequence[int],  # noqa: ARG002  # rows are those of one call
    ) -> Iterator[Sequence[NDArray[np.float32]]]:
        """The same rows of each sequence."""
        import numpy as np  # noqa: PLC0415  # as below

        yield [np.array([self._row(s[: i + 1]) for i in range(len(s))]) for s in sequences]

    @contextmanager
    def conversation(self, n_ctx: int) -> Iterator[ScriptedModel]:
        """Itself, as it has no memory."""
        self.context["n_ctx"] = n_ctx
        yield self

    def reply(
        self, prompt: Sequence[int], n_new: int
    ) -> tuple[list[int], list[NDArray[np.float32]]]:
        """The likeliest tokens, by the same rows."""
        tokens, rows = list(prompt), []
        for _ in range(n_new):
            rows.append(self._row(tokens))
            tokens.append(int(rows[-1].argmax()))
        return tokens[len(prompt) :], rows

    def _row(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        import numpy as np  # noqa: PLC0415  # as below

        return np.random.default_rng(list(tokens)).normal(size=self._n_vocab).astype(np.float32)

    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Logits that favour the next byte's value, blurred by the script's noise."""
        import numpy as np  # noqa: PLC0415  # only scoring needs it

        self.begin("score")
        self.context["n_ctx"] = len(tokens)
        n_rows = len(tokens) - first
        base = np.random.default_rng(list(tokens[first:])).normal(size=(n_rows, self._n_vocab))
        base[np.arange(n_rows - 1), tokens[first + 1 :]] += _FAVOUR
        drifts = self._script.get("faults", {}).get("score") == "drift"
        of_cache = self._script.get("noise_by_type_k", {}).get(self.context["type_k"], 0.0)
        of_batches = self._script.get("noise_of_batches", 0.0) if self._is_batched else 0.0
        spread = 1.0 if drifts else self._script.get("noise", 0.0) + of_cache + of_batches
        noise = np.random.default_rng(None if drifts else 1).normal(scale=spread, size=base.shape)
        blurred: NDArray[np.float32] = (base + noise).astype(np.float32)
        return blurred

    def close(self) -> None:
        """Nothing is kept."""
