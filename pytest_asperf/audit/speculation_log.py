"""llama-speculative's and llama-speculative-simple's output: counts, timings and the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_asperf.audit.sniff import COUNT, NUMBER
from pytest_asperf.audit.timings import read_timing

if TYPE_CHECKING:
    from pytest_asperf.audit.timings import Timing

_RATE: Final = re.compile(rf"(encoded|decoded) +({COUNT}) tokens in +({NUMBER}) seconds")
_COUNT: Final = re.compile(rf"(n_draft|n_predict|n_drafted|n_accept) += ({COUNT})$")
_TOTAL: Final = re.compile(rf"total time = +({NUMBER}) ms /")
_CHECKPOINTS: Final = "speculative decoding will use checkpoints"
# What a program says of itself, which is not what its model wrote.
_LOG_LINE: Final = re.compile(
    r"[\w.:~]{2,60}: |[a-z_]+: | - | for M-RoPE|\.{4,}$|\w+: *$|Failed to |WARNING|build: |\d+ +lib"
)
_MAX_TEXT: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class SpeculationRun:
    """One generated text with a draft model.

    Attributes:
        k: drafted tokens per round that were asked for at most.
        n_predict: tokens emitted.
        n_drafted, n_accept: tokens drafted, and those of them that were accepted.
        prompt: tokens of the prompt and seconds.
        decoded: tokens that the decode phase emitted and seconds.
        draft_decodes: single-token decodes of the draft with their time; None where not said.
        draft_prompt: tokens the draft took in batches; None where not said.
        total_s: time of prompt and generation; None where not said.
        uses_checkpoints: whether the target cannot drop rejected tokens and replays accepted ones.
        text: the text's first part, as far as it can be told from the log.
    """

    k: int | None
    n_predict: int
    n_drafted: int
    n_accept: int
    prompt: tuple[int, float] | None
    decoded: tuple[int, float] | None
    draft_decodes: Timing | None
    draft_prompt: Timing | None
    total_s: float | None
    uses_checkpoints: bool
    text: str

    @property
    def rounds(self) -> int:
        """Rounds of drafting and verifying: each emits one token that was not drafted."""
        return max(self.n_predict - self.n_accept, 0)

    @property
    def rate(self) -> float | None:
        """Tokens emitted per second of the decode phase; None where it is not timed."""
        return self.decoded[0] / self.decoded[1] if self.decoded and self.decoded[1] else None

    @property
    def undecoded_drafts(self) -> int:
        """How many drafted tokens no decode of the draft stands behind; 0 where that is unknown."""
        if self.draft_decodes is None:
            return 0
        batched = self.draft_prompt.n_tokens if self.draft_prompt else 0
        return max(self.n_drafted - self.draft_decodes.n_tokens - batched, 0)


@dataclass(slots=True)
class SpeculationReader:
    """Gathers a run from a log's lines."""

    _counts: dict[str, int] = field(default_factory=dict)
    _rates: dict[str, tuple[int, float]] = field(default_factory=dict)
    _timings: dict[bool, Timing] = field(default_factory=dict)
    _part: str = ""
    _total_s: float | None = None
    _checkpoints: bool = False
    _text: list[str] = field(default_factory=list)
    _text_size: int = 0

    def feed(self, line: str) -> None:
        """Look at one line."""
        if rate := _RATE.match(line):
            self._rates[rate[1]] = int(rate[2]), float(rate[3])
        elif count := _COUNT.match(line):
            self._counts[count[1]] = int(count[2])
        elif line in {"draft:", "target:"}:
            self._part = line
        elif self._part:
            self._feed_part(line)
        elif _CHECKPOINTS in line:
            self._checkpoints = True
        elif not _LOG_LINE.match(line):
            self._add_text(line)

    def _feed_part(self, line: str) -> None:
        if self._part == "draft:" and (timing := read_timing(line)):
            self._timings[timing[0]] = timing[1]
        elif self._part == "target:" and (total := _TOTAL.search(line)):
            self._total_s = float(total[1]) / 1e3

    def run(self) -> SpeculationRun | None:
        """Return the run, None where the log holds none."""
        if not {"n_predict", "n_drafted", "n_accept"} <= self._counts.keys():
            return None
        return SpeculationRun(
            self._counts.get("n_draft"),
            self._counts["n_predict"],
            self._counts["n_drafted"],
            self._counts["n_accept"],
            self._rates.get("encoded"),
            self._rates.get("decoded"),
            self._timings.get(False),
            self._timings.get(True),
            self._total_s,
            self._checkpoints,
            "\n".join(self._text).strip(),
        )

    def _add_text(self, line: str) -> None:
        if self._text_size < _MAX_TEXT:
            self._text.append(line[:_MAX_TEXT])
            self._text_size += len(line) + 1
