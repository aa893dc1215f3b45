"""mlx_lm.benchmark's and mlx_lm.generate's output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pytest_asperf.worker.printed.numbers import COUNT, NUMBER

_PLAN: Final = re.compile(
    rf"Timing with prompt_tokens=({COUNT}), generation_tokens=({COUNT}), batch_size=({COUNT})\."
)
_TRIAL: Final = re.compile(
    rf"Trial ({COUNT}): +prompt_tps=({NUMBER}), generation_tps=({NUMBER}), peak_memory="
)
_AVERAGES: Final = re.compile(rf"Averages: prompt_tps=({NUMBER}), generation_tps=({NUMBER})")
_GENERATED: Final = re.compile(rf"(Prompt|Generation): ({COUNT}) tokens, ({NUMBER}) tokens-per-sec")
_INITIALS: Final = frozenset("TAPG")
_MAX_TRIALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class MlxTrial:
    """One run, with rates in tok/s as printed; sizes are those of each sequence.

    Attributes:
        prompt_rate: of all tokens of the prompt; its time includes the first decode.
        generation_rate: n tokens over the time of n - 1 steps.
    """

    n_prompt: int
    n_gen: int
    batch: int
    prompt_rate: float
    generation_rate: float

    @property
    def rate(self) -> float | None:
        """TG in tok/s: the n - 1 steps that were timed; None for fewer than two tokens."""
        if self.batch > 1:
            return self.generation_rate
        return self.generation_rate * (self.n_gen - 1) / self.n_gen if self.n_gen > 1 else None


@dataclass(slots=True)
class MlxReader:
    """Gathers trials from the output's lines."""

    trials: list[MlxTrial] = field(default_factory=list)
    _plan: tuple[int, int, int] | None = None
    _prompt: tuple[int, float] | None = None
    _is_finished: bool = False

    def feed(self, line: str) -> None:
        """Take one line."""
        if line[:1] not in _INITIALS:
            return
        if plan := _PLAN.match(line):
            self._plan = int(plan[1]), int(plan[2]), int(plan[3])
        elif trial := _TRIAL.match(line):
            sizes = self._plan or (0, 0, 1)
            self._add(MlxTrial(*sizes, float(trial[2]), float(trial[3])))
        elif _AVERAGES.match(line):
            self._is_finished = True
        elif half := _GENERATED.match(line):
            self._add_half(half[1], int(half[2]), float(half[3]))

    @property
    def is_cut_short(self) -> bool:
        """Whether mlx_lm.benchmark did not finish what it said it would time."""
        return self._plan is not None and not self._is_finished

    def _add_half(self, half: str, tokens: int, rate: float) -> None:
        if half == "Prompt":
            self._prompt = tokens, rate
        elif self._prompt is not None:
            n_prompt, prompt_rate = self._prompt
            self._add(MlxTrial(n_prompt, tokens, 1, prompt_rate, rate))
            self._prompt = None

    def _add(self, trial: MlxTrial) -> None:
        if len(self.trials) < _MAX_TRIALS:
            self.trials.append(trial)
