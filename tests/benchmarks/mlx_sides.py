"""Both sides of a comparison with mlx-lm, each in a process that stays."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pytest_asperf.host import EngineBuild, Worker
from pytest_asperf.measure.ladder import PPL_N_CTX, split_chunks
from pytest_asperf.modelfiles.shipped import shipped_corpus, shipped_models
from pytest_asperf.spec import EngineSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUILD: Final = EngineBuild("mlx", Path(sys.executable))
MODEL: Final = "model"
DRAFT: Final = "draft"


@dataclass(frozen=True, slots=True)
class Sides:
    """This plugin's worker and mlx-lm's process, on one model.

    Attributes:
        worker: ours, with `MODEL` and `DRAFT` loaded.
        tokens: of the corpus.
        chunks: its first chunks, BOS first in each.
    """

    worker: Worker
    tokens: Sequence[int]
    chunks: Sequence[Sequence[int]]
    _requests: IO[str]
    _answers: IO[str]

    def ask(self, request: str) -> list[float]:
        """Return mlx-lm's answer."""
        print(request, file=self._requests, flush=True)
        answer: list[float] = json.loads(self._answers.readline())
        return answer


@contextmanager
def both_sides(n_chunks: int = 2) -> Iterator[Sides]:
    """Start both on the shipped target, with the shipped draft beside it."""
    folders = {spec.name.removeprefix("asperf-"): spec.hf_folder for spec in shipped_models()}
    folder, draft = folders["target"], folders["draft"]
    if folder is None or draft is None:
        raise ValueError("a shipped model has no folder")
    text = shipped_corpus().read_text("utf-8")
    with tempfile.TemporaryDirectory() as scratch, Worker(BUILD) as worker:
        worker.load(MODEL, folder, EngineSettings())
        worker.load(DRAFT, draft, EngineSettings())
        tokens = worker.tokenize(MODEL, text)
        parts = split_chunks(tokens, n_ctx=PPL_N_CTX, at_most=n_chunks, corpus="shipped")
        chunks = [[tokens[0], *part[1:]] for part in parts]
        plan = Path(scratch) / "plan.json"
        plan.write_text(
            json.dumps(
                {
                    "model": str(folder),
                    "draft": str(draft),
                    "tokens": tokens[:4096],
                    "chunks": chunks,
                }
            )
        )
        script = Path(__file__).with_name("mlx_peer.py")
        with subprocess.Popen(
            [sys.executable, script, plan], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            if peer.stdin is None or peer.stdout is None:
                raise ValueError("the peer has no pipes")
            yield Sides(worker, tokens, chunks, peer.stdin, peer.stdout)
            peer.stdin.close()
