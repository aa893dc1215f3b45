"""The gain of speculative decoding: the arithmetic of one round of drafting and verifying.

A round drafts k tokens, verifies them in one batch of k + 1 positions on the target, and emits the
accepted ones and one token of the target's own. Costs are in units of one step of the target:
`c`, one step of the draft; `verify`, the batch of k + 1, called C(k + 1). From Leviathan, Kalman
and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023, with C measured
where they assume 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.analysis.stats.sequential_frame import crossing

#: Tokens per round; a smaller difference is rounding.
LEAST_SPARE: Final = 1e-9

#: Speed ratio of draft to target from which speculation pays, by a rule of thumb.
RULE_RATIO: Final = 2.5


def emitted_per_round(acceptance: float, k: int) -> float:
    """The expected number of tokens that one round emits.

    (1 - a^(k+1)) / (1 - a) with acceptance a from 0 to 1 (equation 1 of the paper).
    """
    return math.fsum(acceptance**position for position in range(k + 1))


def acceptance_of(emitted: float, k: int) -> float:
    """The acceptance rate at which a round of k drafted tokens emits `emitted` on average.

    The inverse of `emitted_per_round`. A plain accepted / drafted is lower if drafts are cut off by
    a first rejection, because the tokens after it were drafted and never judged.
    """
    if not 1 <= emitted <= k + 1:
        raise ValueError(f"{emitted} tokens per round cannot come of {k} drafted ones")
    return crossing(lambda acceptance: emitted - emitted_per_round(acceptance, k), 0, 1)


def gain(emitted: float, k: int, c: float, verify: float) -> float:
    """The gain in rate over the target alone, as a fraction: emitted / (k c + C(k + 1)) - 1."""
    return emitted / (k * c + verify) - 1


def break_even_ratio(emitted: float, k: int, verify: float) -> float:
    """The speed ratio of draft to target from which speculation gains anything.

    It gains where k c < emitted - C(k + 1), and the ratio is 1 / c; infinite if verifying costs at
    least as much as a round emits, because no draft is fast enough then.
    """
    spare = emitted - verify
    return k / spare if spare > LEAST_SPARE else math.inf


def best_k(acceptance: float, c: float, verify: Mapping[int, float]) -> tuple[int, float]:
    """The number of drafted tokens with the highest predicted gain, and that gain.

    `verify` has the cost C by positions of the batch, and k may be each of them less one.
    """
    ks = [positions - 1 for positions in verify if positions > 1]
    if not ks:
        raise ValueError("no cost of a batch of two positions or more")
    gains = {k: gain(emitted_per_round(acceptance, k), k, c, verify[k + 1]) for k in sorted(ks)}
    k = max(gains, key=lambda k: gains[k])
    return k, gains[k]


#: llama.cpp, common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
MOST_PADDING: Final = 128


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model, as far as two can be compared without their texts."""

    rest: str  #: hash of the other rules for splitting text, and of the special tokens
    #: hashes of the tokens without their last `MOST_PADDING`, one fewer, and so on; the last is of
    #: all tokens
    ends: tuple[bytes, ...]

    def pairs_with(self, other: Vocabulary) -> bool:
        """True if one has the other's tokens, and at most `MOST_PADDING` more behind them."""
        return self.rest == other.rest and self.has_tokens_of(other)

    def has_tokens_of(self, other: Vocabulary) -> bool:
        """The same without the other rules for splitting text."""
        if not self.ends or not other.ends:
            return False
        return self.ends[-1] in other.ends or other.ends[-1] in self.ends


def acceptance_text(by_category: Mapping[str, float], by_position: Sequence[float]) -> str:
    """Acceptance by category and by position of the draft."""
    positions = " ".join(f"{100 * share:.0f}" for share in by_position)
    return f"{each_text(by_category, '.0%')}; by position {positions} %"


def break_even_text(ratio: float | None, emitted: float, verifying: float) -> str:
    """The speed ratio from which a pair would gain; None, or infinity, if there is none."""
    if ratio is not None and ratio < math.inf:
        return f"break-even at {number_text(ratio)} x"
    return (
        f"no break-even: a round emits {emitted:.2f}, and verifying it costs {verifying:.2f} steps"
    )


def best_text(k: int, gain: float) -> str:
    """The number of drafted tokens with the highest predicted gain."""
    return f"best k={k} ({100 * gain:+.1f} %)"


def split_text(time_split: Mapping[str, float]) -> str:
    """The parts of the time of the speculative runs."""
    return ", ".join(f"{part} {100 * share:.1f} %" for part, share in time_split.items())


def each_text(figures: Mapping[str, float], form: str) -> str:
    """Figures by category."""
    return ", ".join(f"{category} {figure:{form}}" for category, figure in figures.items())
