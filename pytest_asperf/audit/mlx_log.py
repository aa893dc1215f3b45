"""mlx_lm.benchmark's, mlx_lm.generate's and mlx_lm.perplexity's output."""

import math
import re
from dataclasses import dataclass, field
from typing import Final

from pytest_asperf.worker.printed import COUNT, NUMBER, PLUS_MINUS, Unread
from pytest_asperf.worker.printed.perplexity_log import PerplexityRun

_PLAN: Final = re.compile(r"Timing with (.*)")
_TRIAL: Final = re.compile(rf"(Trial {COUNT}|Averages): +(.*)")
#: Sizes and rates, in either form: `prompt_tokens=1024 and generation_tokens=256.`
_PAIR: Final = re.compile(rf"(\w+)=({NUMBER})")
#: A trial's have three decimals; a number with fewer at the end of a line is cut off.
_WHOLE: Final = re.compile(rf"(\w+)=({NUMBER}(?=,? )|\d{{1,15}}\.\d{{3}})")
_UNMEASURED: Final = re.compile(r"\w+_tps=[+-]?(?:nan|inf|0+(?:\.0+)?)(?=[, ]|$)")
_GENERATED: Final = re.compile(
    rf"(Prompt|Generation): (?:({COUNT}) tokens, )?({NUMBER}) tokens-per-sec"
)
_SHOWN: Final = r"\d{1,12}\.\d{3,9}"
_PERPLEXITY: Final = re.compile(
    rf"Perplexity: ({_SHOWN}|nan|inf)(?:{PLUS_MINUS}({_SHOWN}|nan|inf))?$"
)
_TEST_LOSS: Final = re.compile(rf"Test loss ({NUMBER}|nan), Test ppl ({NUMBER}|nan|inf)")
_LIKE_FIGURE: Final = re.compile(r"(?:Prompt|Generation): .*\d tokens-per-sec|Perplexity: \d")
_INITIALS: Final = frozenset("TAPG")
_MAX_TRIALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class MlxTrial:
    """One run, with rates in tok/s as printed; sizes are those of each sequence, 0 if unknown."""

    n_prompt: int
    n_gen: int
    batch: int
    prompt_rate: float  #: of all tokens of the prompt; its time includes the first decode
    generation_rate: float  #: n tokens over the time of n - 1 steps
    #: True if it is the average of several trials whose lines are not there
    is_average: bool = False

    @property
    def rate(self) -> float | None:
        """TG in tok/s: the n - 1 steps that were timed; as printed if n is unknown."""
        if self.batch > 1 or not self.n_gen:
            return self.generation_rate or None
        return self.generation_rate * (self.n_gen - 1) / self.n_gen if self.n_gen > 1 else None


@dataclass(slots=True)
class MlxReader:
    """Gathers trials and perplexities from the output's lines."""

    trials: list[MlxTrial] = field(default_factory=list)
    perplexities: list[PerplexityRun] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)  #: trials with a rate of 0 or no number
    #: lines whose figures are cut off, or have a comma before their decimals
    unread: Unread = field(default_factory=Unread)
    _plan: tuple[int, int, int] | None = None
    _n_trials: int = 0
    _prompt: tuple[int, float] | None = None
    _is_finished: bool = True

    def feed(self, line: str) -> None:
        """Parse one line."""
        if line[:1] not in _INITIALS:
            return
        if plan := _PLAN.match(line):
            found = {key: int(float(value)) for key, value in _PAIR.findall(plan[1])}
            sizes = (found.get(f"{part}_tokens", 0) for part in ("prompt", "generation"))
            self._plan = (*sizes, max(found.get("batch_size", 1), 1))  # type: ignore[assignment]
            self._is_finished, self._n_trials = False, 0
        elif (trial := _TRIAL.match(line)) and (lost := _UNMEASURED.search(trial[2])):
            self.unmeasured.append(f"{trial[1]} of mlx_lm: {lost[0]}")
        elif trial:
            found_rates = {key: float(value) for key, value in _WHOLE.findall(trial[2])}
            if not self._add_trial(trial[1], found_rates):
                self.unread.add(line)
        elif half := _GENERATED.match(line):
            if not self._add_half(half[1], int(half[2] or 0), float(half[3])):
                self.unread.add(line)
        elif (found_ppl := _PERPLEXITY.match(line)) or (found_ppl := _TEST_LOSS.match(line)):
            is_loss = line.startswith("Test")
            error = None if is_loss else found_ppl[2]
            self._add_perplexity(float(found_ppl[2 if is_loss else 1]), error)
        elif _LIKE_FIGURE.match(line):
            self.unread.add(line)

    def end(self) -> None:
        """Count a prompt whose text was not timed."""
        if self._prompt is not None:
            self.unread.add(f"Prompt: {self._prompt[0]} tokens")

    @property
    def is_cut_short(self) -> bool:
        """True if mlx_lm.benchmark did not finish its announced trials."""
        return not self._is_finished

    def _add_trial(self, name: str, found: dict[str, float]) -> bool:
        if not {"prompt_tps", "generation_tps"} <= found.keys():
            return False
        is_average = name == "Averages"
        if not (is_average and self._n_trials):
            sizes = self._plan or (0, 0, 1)
            rates = found["prompt_tps"], found["generation_tps"]
            self._add(MlxTrial(*sizes, *rates, is_average))
        self._n_trials = 0 if is_average else self._n_trials + 1
        self._is_finished = self._is_finished or is_average
        return True

    def _add_half(self, half: str, tokens: int, rate: float) -> bool:
        if half == "Prompt":
            is_first, self._prompt = self._prompt is None, (tokens, rate)
            return is_first  # otherwise the text's line of the one before it was left out
        if self._prompt is not None:
            n_prompt, prompt_rate = self._prompt
            self._add(MlxTrial(n_prompt, tokens, 1, prompt_rate, rate))
            self._prompt = None
            return True
        return False

    def _add_perplexity(self, ppl: float, error: str | None) -> None:
        if len(self.perplexities) >= _MAX_TRIALS:
            return
        if not (math.isfinite(ppl) and ppl > 0):
            self.perplexities.append(PerplexityRun((), not_finite=f"PPL is {ppl}"))
        else:
            self.perplexities.append(
                PerplexityRun((), final=(ppl, float(error) if error else None))
            )

    def _add(self, trial: MlxTrial) -> None:
        if len(self.trials) < _MAX_TRIALS:
            self.trials.append(trial)
