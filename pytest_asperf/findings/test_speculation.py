"""What speculation gains, on the shipped pair and on variants of its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_asperf import (
    Speculation,
    assert_lossless,
    assert_sd_gain,
    assert_sd_gains_more,
    assert_sd_loss,
)

#: Levels that both engines have, and a prompt of each of the shipped categories.
_PAIR = {
    "draft": "asperf-draft:F16",
    "target": "asperf-target:F16",
    "k": 4,
    "n_tokens": 24,
    "prompts": str(Path(__file__).with_name("prompts.json")),
}


@pytest.mark.finding("sd-needs-ratio-2.5")
@pytest.mark.speculative(**_PAIR)
def test_speculation_gains_from_a_ratio_of_2_5_on(speculation: Speculation) -> None:
    """A gain is shown at a speed ratio of 2.5 and more, and none below."""
    assert_sd_gain(speculation, when_ratio=2.5)


@pytest.mark.speculative(**_PAIR)
def test_speculation_is_lossless(speculation: Speculation) -> None:
    """Greedy output with the draft is the target's own, up to near-ties."""
    assert_lossless(speculation)


@pytest.mark.finding("moe-speculation-loses")
@pytest.mark.speculative(**{**_PAIR, "target": "asperf-target+experts=4:F16"})
def test_speculation_slows_a_mixture_of_experts(speculation: Speculation) -> None:
    """The draft makes a target slower of which each token reads one expert in four."""
    assert_sd_loss(speculation)


@pytest.mark.finding("self-speculation-loses")
@pytest.mark.speculative(**{**_PAIR, "draft": "asperf-target:Q4_0"})
def test_self_speculation_loses(speculation: Speculation) -> None:
    """A lower level of the model itself as its draft makes it slower."""
    assert_sd_loss(speculation)


@pytest.mark.finding("sd-ratio-over-acceptance")
@pytest.mark.speculative(**_PAIR)
def test_a_fast_draft_gains_more_than_a_good_one(speculation: Speculation) -> None:
    """The small draft speeds up by more than the target's own lower level, which is hit more."""
    assert_sd_gains_more(speculation, than=speculation.drafted_by("asperf-target:Q4_0"))
