"""Scores of a level against its baseline's: whether they are of two models, and of sound ones."""

from __future__ import annotations

from typing import Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure
from pytest_asperf.analysis.stats.estimate import percent_text

#: Share of its vocabulary from which a PPL is no model's. Guessing evenly makes all of it; half of
#: it is one bit better than that, and counting how often tokens occur gives far more.
KNOWS_NOTHING: Final = 0.5

#: Changes of PPL that no level of the same weights reaches, as coarser weights lose what a model
#: knows; and that no weights reach that were trained further, such as QAT's.
IMPOSSIBLE_GAIN: Final = -0.1
IMPOSSIBLE_GAIN_OF_TRAINING: Final = -0.5


def knows_nothing(ppl: float, n_vocab: int) -> GuardFinding | None:
    """Trip if a baseline predicts a text hardly better than by guessing among its tokens."""
    if ppl < KNOWS_NOTHING * n_vocab:
        return None
    return Guard.BASELINE_KNOWS_NOTHING.finding(
        f"the baseline's PPL is {figure(ppl)}, and guessing among its {n_vocab} tokens makes "
        f"{figure(n_vocab)}",
        f"a baseline's PPL lies below {KNOWS_NOTHING:.0%} of its vocabulary",
    )


def impossible_gain(change: float, *, is_other_model: bool = False) -> GuardFinding | None:
    """Trip if PPL falls by more of the baseline's than quantization, or training, can explain.

    A model that is declared under another name than its baseline may be a fine-tuned one.
    """
    limit = IMPOSSIBLE_GAIN_OF_TRAINING if is_other_model else IMPOSSIBLE_GAIN
    if change > limit:
        return None
    whose = "further training" if is_other_model else "a level"
    return Guard.IMPOSSIBLE_GAIN.finding(
        f"PPL changes by {percent_text(change, 4)}: the baseline is broken, or of another model",
        f"{whose} does not improve on a sound baseline's PPL by {-limit:.0%}",
    )


def lossless(n_tokens: int, reason: str) -> GuardFinding:
    """The warning that a level gives all tokens the baseline's probability, and why it may."""
    return Guard.LOSSLESS_BY_CONSTRUCTION.finding(
        f"all {n_tokens} tokens have the same probability as in the baseline: {reason}",
        "such a level shows nothing about quantization",
    )
