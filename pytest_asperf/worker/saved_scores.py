"""The output of `llama-perplexity --save-all-logits`, read from a pipe while it is written.

The format (perplexity.cpp): `_logits_`, then n_ctx, n_vocab and n_chunk as 32-bit integers, the
n_chunk x n_ctx tokens, and for each chunk n_ctx - 1 - n_ctx / 2 rows. A row is two floats, scale
and minimum, and for each token of the vocabulary 16 bits, padded to an even number of them: ln p =
scale * bits + minimum. The minimum is 16 nats below the likeliest token, or the lowest value if
that is higher. So a step is at most 16 / 65535 nats, and lower values are saved as the minimum.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from .engine import RefusalError
from .logits import require_preference
from .printed.engine_log import flash_attention
from .printed.perplexity_log import PerplexityReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .tool_process import Toolbox, ToolRun

    Matrix = NDArray[np.float32]

PROGRAM: Final = "llama-perplexity"

_MAGIC: Final = b"_logits_"
_MOST: Final = 2**31
_HEAD: Final = 4  # 16-bit words of the two floats of a row
#: Half a step is the most that rounding moves a token's NLL, and so a mean of them.
_ROUNDING_NATS: Final = 0.5 * 16 / 65535
#: The printed PPL has four decimals.
_PRINTED: Final = 0.5e-4
_SLACK: Final = 1e-5
#: llama.cpp logs from a thread of its own, which is late on a busy machine.
_LOG_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Text:
    """A text with the tokens that a model makes of it."""

    text: str
    tokens: tuple[int, ...]

    def chunk(self, tokens: Sequence[int], at_least: int) -> int | None:
        """The index of the chunk with these tokens, from `at_least` on if there is one.

        Equal chunks have one value: none sees the chunks before it.
        """
        n = len(tokens)
        indices = [
            start // n
            for start in range(0, len(self.tokens) - n + 1, n)
            if self.tokens[start] == tokens[0] and self.tokens[start : start + n] == tuple(tokens)
        ]
        return next(
            (index for index in indices if index >= at_least), indices[0] if indices else None
        )


class SavedScores:
    """One run of llama-perplexity over a text, whose scores are read chunk by chunk.

    Between two chunks it is stopped. Its saved scores are checked against its printed ones.
    `on_server` is True if an RPC server computes for it.
    """

    def __init__(
        self,
        tools: Toolbox,
        arguments: Sequence[str],
        text: str,
        n_ctx: int,
        *,
        on_server: bool = False,
    ) -> None:
        self.n_ctx = n_ctx
        self._on_server = on_server
        #: NLL in nats of the scored tokens of each chunk that was read
        self.nll: list[NDArray[np.float32]] = []
        self._nll_sums = [0.0]
        self._is_cut = [False]
        self._n_checked = 0
        reader, writer = os.pipe()
        options = ("-c", str(n_ctx), "--save-all-logits", f"/dev/fd/{writer}")
        try:
            self.run: ToolRun = tools.start_on(
                PROGRAM, text, *arguments, *options, pass_fds=(writer,)
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._pipe: BinaryIO = os.fdopen(reader, "rb")
        try:
            self._n_vocab, self.tokens = self._read_header()
        except BaseException:
            self.close()
            raise
        self.run.pause()

    @property
    def n_done(self) -> int:
        """Chunks that were read."""
        return len(self.nll)

    def next_chunk(self) -> Matrix:
        """The next chunk's log-probabilities, shape (n_ctx - 1 - n_ctx // 2, n_vocab)."""
        n_rows = self.n_ctx - 1 - self.n_ctx // 2
        width = 2 * ((self._n_vocab + 1) // 2) + _HEAD
        self.run.go_on()
        raw = self._read(2 * n_rows * width)
        if not self.n_done:
            self._await_log()
        self.run.pause()
        rows = np.frombuffer(raw, "<u2").reshape(n_rows, width)
        scale, floor = np.ascontiguousarray(rows[:, :_HEAD]).view("<f4").T[:, :, None]
        if not (np.isfinite(scale).all() and np.isfinite(floor).all()):
            raise RefusalError("non-finite", f"{PROGRAM} saved log-probabilities that are none")
        log_probabilities: Matrix = rows[:, _HEAD : _HEAD + self._n_vocab].astype(np.float32)
        log_probabilities *= scale
        log_probabilities += floor
        require_preference(log_probabilities.max(axis=1), self._n_vocab)
        start = self.n_done * self.n_ctx + self.n_ctx - n_rows
        targets = np.asarray(self.tokens[start : start + n_rows], np.intp)
        every = np.arange(n_rows)
        is_cut = bool((rows[every, _HEAD + targets] == 0).any())
        self._is_cut.append(self._is_cut[-1] or is_cut)
        self.nll.append(-log_probabilities[every, targets])
        self._nll_sums.append(self._nll_sums[-1] + float(self.nll[-1].sum(dtype=np.float64)))
        self._check_printed(n_rows)
        if wrong := self.run.first_error():
            raise self.run.failure(f"said: {wrong}")
        return log_probabilities

    def close(self) -> None:
        """End the program."""
        self._pipe.close()
        if self._on_server:
            # Killed while it waits for an answer, it would end the server too, by SIGPIPE. With no
            # reader of its scores, it ends by that signal at its next chunk, between two answers.
            self.run.go_on()
            self.run.wait()
        else:
            self.run.end()

    def _read_header(self) -> tuple[int, tuple[int, ...]]:
        magic = self._read(len(_MAGIC))
        n_ctx, n_vocab, n_chunks = struct.unpack("<iii", self._read(12))
        is_sound = magic == _MAGIC and n_ctx == self.n_ctx and n_vocab > 0 and n_chunks > 0
        if not is_sound or n_ctx * n_chunks >= _MOST:
            raise self.run.failure("saved its scores in an unknown format")
        tokens = np.frombuffer(self._read(4 * n_ctx * n_chunks), "<i4")
        if tokens.min() < 0 or tokens.max() >= n_vocab:
            raise self.run.failure("saved tokens that are not in the vocabulary")
        return n_vocab, tuple(tokens.tolist())

    def _read(self, n_bytes: int) -> bytes:
        data = self._pipe.read(n_bytes)
        if len(data) < n_bytes:
            self.run.go_on()
            self.run.finish()
            raise self.run.failure("exited with 0 and did not score all of the text")
        return data

    def _await_log(self) -> None:
        """Wait for the log's lines about the context, which ran before these scores."""
        end = time.monotonic() + _LOG_S
        while flash_attention(self.run.log) == "unknown" and time.monotonic() < end:
            time.sleep(0.001)

    def _check_printed(self, n_rows: int) -> None:
        """Compare the mean NLL of the saved scores with the PPL printed so far: it comes later."""
        reader = PerplexityReader()
        for line in self.run.output.splitlines():
            reader.feed(line)
        if not (runs := reader.runs()):
            return
        printed = runs[-1]
        if problem := printed.not_finite or printed.gap:
            raise RefusalError("non-finite", f"{PROGRAM}: {problem}")
        while self._n_checked < min(self.n_done, len(printed.running_ppl)):
            self._n_checked = n = self._n_checked + 1
            ppl, saved = printed.running_ppl[n - 1], self._nll_sums[n] / (n * n_rows)
            off, allowed = saved - math.log(ppl), _ROUNDING_NATS + _PRINTED / ppl + _SLACK
            # A token at the minimum was worse than its saved value.
            if off > allowed or (off < -allowed and not self._is_cut[n]):
                raise RefusalError(
                    "tool",
                    f"{PROGRAM} printed PPL {ppl:.4f} after chunk {n}, and what it saved gives "
                    f"{math.exp(saved):.4f}",
                )
