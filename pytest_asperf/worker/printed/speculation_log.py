"""llama-speculative's and llama-speculative-simple's output: counts, timings and the text.

For every drafter (another model, the target's own MTP heads, EAGLE, a lookup of n-grams), counts
are those of the first verification: tokens that a tool verifies again after a checkpoint were
accepted before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from . import COUNT, NUMBER
from .timings import PrintedTiming, read_timing

_RATE: Final = re.compile(rf"(encoded|decoded) +({COUNT}) tokens in +({NUMBER}) seconds")
_COUNT: Final = re.compile(rf"(n_draft|n_predict|n_drafted|n_accept) += ({COUNT})$")
#: Names of a run that differ from the log's.
_NAMES: Final = {"n_draft": "k", "encoded": "prompt"}
_TOTAL: Final = re.compile(rf"total time = +({NUMBER}) ms")
_CHECKPOINTS: Final = "speculative decoding will use checkpoints"
_SYNTHETIC: Final = "synthetic speculative acceptance is enabled"
_DRAFTER: Final = re.compile(
    rf"statistics +([a-z][a-z0-9-]{{0,30}}): #calls\(b,g,a\) = .*#acc drafts = *({COUNT}), "
    rf"#gen tokens = *({COUNT}), #acc tokens = *({COUNT})"
)
# In a log at -lv 5. A round that went back to its checkpoint is verified again in the next.
_VERIFIED: Final = re.compile(rf"accepted ({COUNT})/({COUNT}) draft tokens, the last target token")
_WENT_BACK: Final = re.compile(rf"partial acceptance: ({COUNT}) < ({COUNT}), restoring checkpoint")
_MOST_DRAFTERS: Final = 20
# Lines of a program about itself, and PowerShell's about its stderr, that are not the model's
# output.
_LOG_LINE: Final = re.compile(
    r"[\w.:~]{2,60}: |[a-z_]+: | *- | *for M-RoPE|\.+$|\w+: *$|Failed to |WARNING|build: |\d+ +lib"
    r"|\+ |At (?:line|\S+):\d+ char:\d+"
)
_BEGINS: Final = re.compile(r"llama_model_loader: loaded meta data|build(?:_info)?: |main: build")
_MAX_RUNS: Final = 200
_MAX_TEXT: Final = 1 << 14
_MAX_STATISTICS: Final = 1000


@dataclass(frozen=True, slots=True)
class Drafter:
    """The result of one way of drafting, by the last statistics of a log."""

    kind: str  #: its type, such as `draft-mtp` or `ngram-simple`
    n_accepted_drafts: int  #: drafts of which some token was accepted
    n_drafted: int
    #: tokens accepted; where a part of a draft is verified again from a checkpoint, it is counted
    #: with the target's own token behind it
    n_accepted: int

    @property
    def is_model(self) -> bool:
        """True if a model drafts, and no lookup."""
        return self.kind.startswith("draft-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRun:
    """One generated text with a draft; None if the log lacks the counts."""

    n_predict: int  #: tokens emitted
    n_drafted: int
    n_accept: int
    k: int | None = None  #: maximum of drafted tokens per round
    prompt: tuple[int, float] | None = None  #: tokens of the prompt and seconds
    decoded: tuple[int, float] | None = None  #: tokens that the decode phase emitted and seconds
    draft_decodes: PrintedTiming | None = None
    draft_prompt: PrintedTiming | None = None  #: tokens that the draft processed in batches
    total_s: float | None = None
    #: whether the target cannot drop rejected tokens and replays accepted ones
    uses_checkpoints: bool
    drafters: tuple[Drafter, ...]
    #: accepted and drafted tokens by the lines of single rounds, replays left out
    verified: tuple[int, int] | None
    text: str  #: the text's first part, as far as the log shows which lines are text

    @property
    def first_verified(self) -> tuple[int, int, int] | None:
        """Tokens accepted on first verification, at least and at most, and tokens drafted.

        None if the log lacks the counts. With checkpoints the tool's own counts cover only the
        second verification, in which all tokens are accepted; the statistics of its drafters may
        count each draft with one token too many.
        """
        if self.verified:
            accepted, drafted = self.verified
            return accepted, accepted, drafted
        if not self.uses_checkpoints:
            return self.n_accept, self.n_accept, self.n_drafted
        if not self.drafters:
            return None
        accepted = sum(drafter.n_accepted for drafter in self.drafters)
        replays = sum(drafter.n_accepted_drafts for drafter in self.drafters)
        return (
            max(0, accepted - replays),
            accepted,
            sum(drafter.n_drafted for drafter in self.drafters),
        )

    @property
    def longest_draft(self) -> int | None:
        """Most tokens that a round drafts; None if unknown, as for lookups."""
        return self.k if all(drafter.is_model for drafter in self.drafters) else None

    @property
    def n_drafted_by_model(self) -> int:
        """Tokens that a model drafted: the number that the log proves."""
        if not self.drafters:
            return self.n_drafted
        return sum(drafter.n_drafted for drafter in self.drafters if drafter.is_model)

    @property
    def rounds(self) -> int:
        """Rounds of drafting and verifying: each emits one token that was not drafted."""
        return max(self.n_predict - self.n_accept, 0)

    @property
    def rate(self) -> float | None:
        """Tokens emitted per second of the decode phase; None if it is not timed."""
        return self.decoded[0] / self.decoded[1] if self.decoded and self.decoded[1] else None

    @property
    def own_contradiction(self) -> str:
        """The counts that its two reports give otherwise; empty if they agree, or one lacks.

        With checkpoints both count tokens again.
        """
        drafted = sum(drafter.n_drafted for drafter in self.drafters)
        accepted = sum(drafter.n_accepted for drafter in self.drafters)
        known = self.drafters and not self.uses_checkpoints
        if not known or (drafted, accepted) == (self.n_drafted, self.n_accept):
            return ""
        return (
            f"counted {self.n_accept} accepted of {self.n_drafted} drafted tokens, and {accepted} "
            f"of {drafted} by its drafters' statistics"
        )

    @property
    def undecoded_drafts(self) -> int:
        """Drafted tokens without a decode of the draft; 0 if that is unknown."""
        if self.draft_decodes is None:
            return 0
        batched = self.draft_prompt.n_tokens if self.draft_prompt else 0
        return max(self.n_drafted - self.draft_decodes.n_tokens - batched, 0)


@dataclass(slots=True)
class SpeculationReader:
    """Gathers the runs from a log's lines; a run ends with its target's total time."""

    _done: list[SpeculationRun] = field(default_factory=list)
    _found: dict[str, Any] = field(default_factory=dict)
    _part: str = ""
    _drafters: dict[str, Drafter] = field(default_factory=dict)
    _n_accepted: int = 0
    _n_drafted: int = 0
    _is_replay: bool = False
    uses_checkpoints: bool = False
    is_synthetic: bool = False
    _text: list[str] = field(default_factory=list)
    _text_size: int = 0
    _is_at_count: bool = False

    def feed(self, line: str) -> None:
        """Parse one line."""
        self._is_at_count = False
        if self._feed_drafting(line):
            return
        if rate := _RATE.match(line):
            self._add(rate[1], (int(rate[2]), float(rate[3])))
        elif count := _COUNT.match(line):
            self._add(count[1], int(count[2]))
            self._is_at_count = True
        elif line in {"draft:", "target:"}:
            self._part = line
        elif _BEGINS.match(line):
            self._end()
        elif self._part:
            self._feed_part(line)
        elif not _LOG_LINE.match(line):
            self._add_text(line)

    def runs(self) -> tuple[SpeculationRun, ...]:
        """The runs that counted anything, in their order."""
        return (*self._done, *self._current())

    @property
    def n_ended(self) -> int:
        """Runs that have ended."""
        return len(self._done)

    def _current(self) -> list[SpeculationRun]:
        is_whole = {"n_predict", "n_drafted", "n_accept"} <= self._found.keys()
        if not is_whole or self._is_at_count:  # a log may end within its last count
            return []
        run = SpeculationRun(
            **self._found,
            uses_checkpoints=self.uses_checkpoints,
            drafters=self.drafters,
            verified=(self._n_accepted, self._n_drafted) if self._n_drafted else None,
            text="\n".join(self._text).strip(),
        )
        return [run]

    def _add(self, printed: str, value: object) -> None:
        name = _NAMES.get(printed, printed)
        if name in self._found:
            self._end()
        self._found[name] = value

    def _end(self) -> None:
        run = self._current()
        if not run:
            return
        if len(self._done) < _MAX_RUNS:
            self._done += run
        self._found, self._part, self._drafters = {}, "", {}
        self._n_accepted = self._n_drafted = self._text_size = 0
        self._is_replay = self.uses_checkpoints = False
        self._text = []

    def _feed_part(self, line: str) -> None:
        if self._part == "draft:" and (timing := read_timing(line)):
            is_prompt, printed = timing
            self._found["draft_prompt" if is_prompt else "draft_decodes"] = printed
        elif self._part == "target:" and (total := _TOTAL.search(line)):
            self._found["total_s"] = float(total[1]) / 1e3
            self._end()

    def _feed_drafting(self, line: str) -> bool:
        """Parse a line; True if it is about how tokens were drafted or verified."""
        if _CHECKPOINTS in line:
            self.uses_checkpoints = True
        elif _SYNTHETIC in line:
            self.is_synthetic = True
        elif drafter := _DRAFTER.search(line, 0, _MAX_STATISTICS):
            self._add_drafter(drafter)
        elif went_back := _WENT_BACK.match(line):
            self._add_round(went_back, goes_back=True)
        elif verified := _VERIFIED.match(line):
            self._add_round(verified, goes_back=False)
        else:
            return False
        return True

    def _add_drafter(self, found: re.Match[str]) -> None:
        kind = found[1]
        if kind in self._drafters or len(self._drafters) < _MOST_DRAFTERS:
            # Counts go on through a server's requests: the last line has them all.
            self._drafters[kind] = Drafter(kind, *map(int, found.group(2, 3, 4)))

    def _add_round(self, found: re.Match[str], *, goes_back: bool) -> None:
        if not self._is_replay:
            self._n_accepted += int(found[1])
            self._n_drafted += int(found[2])
        self._is_replay = goes_back

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        """Ways of drafting that have drafted anything, by the last statistics."""
        return tuple(drafter for drafter in self._drafters.values() if drafter.n_drafted)

    def _add_text(self, line: str) -> None:
        if self._text_size < _MAX_TEXT:
            self._text.append(line[:_MAX_TEXT])
            self._text_size += len(line) + 1
