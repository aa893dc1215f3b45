"""The gain of speculation, by its draft and by its target."""

from pathlib import Path

import pytest

from pytest_asperf import Speculation, assert_lossless, assert_sd_gain

#: Eight to twelve prompts of each category, where categories are compared with each other.
_BY_CATEGORY = str(Path(__file__).with_name("prompts-by-category.json"))
#: A prompt of each of the shipped categories.
_PAIR = {
    "draft": "@draft",
    "target": "@target",
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
@pytest.mark.speculative(**{**_PAIR, "target": "@moe"})
def test_speculation_slows_a_mixture_of_experts(speculation: Speculation) -> None:
    """The draft makes a target slower of which each token reads one expert in four."""
    assert speculation.gain < 0


@pytest.mark.finding("self-speculation-loses")
@pytest.mark.speculative(**{**_PAIR, "draft": "@target:Q4_0"})
def test_self_speculation_loses_a_quarter(speculation: Speculation) -> None:
    """A smaller quantization of the model itself as its draft costs 20 to 30 % of TG."""
    assert "-30%" <= speculation.gain <= "-20%"


@pytest.mark.finding("sd-ratio-over-acceptance")
@pytest.mark.speculative(**_PAIR)
def test_a_fast_draft_gains_more_than_a_good_one(speculation: Speculation) -> None:
    """The fast draft speeds up by more than the slower one, which is accepted more."""
    assert speculation.gain > speculation.drafted_by("@other_draft").gain


#: As published: 200 tokens after each prompt.
_PUBLISHED = {"draft": "@draft", "target": "@target", "k": 4, "n_tokens": 200}


@pytest.mark.finding("sd-headline")
@pytest.mark.speculative(**_PUBLISHED)
def test_a_small_draft_makes_a_9b_a_quarter_faster(speculation: Speculation) -> None:
    """The draft makes a target of 9B 25.7 % faster, within a tenth of that."""
    assert "23%" <= speculation.gain <= "28.5%"


@pytest.mark.finding("sd-small-draft-gains")
@pytest.mark.speculative(**_PUBLISHED)
def test_a_small_draft_speeds_up_its_target(speculation: Speculation) -> None:
    """The draft makes the target faster, for any speed ratio."""
    assert speculation.gain > 0


@pytest.mark.finding("sd-code-accepted-most")
@pytest.mark.speculative(draft="@draft", target="@target", k=4, n_tokens=64, prompts=_BY_CATEGORY)
def test_code_is_accepted_most(speculation: Speculation) -> None:
    """More drafted tokens are accepted in code than in mathematics and in text."""
    code = speculation.acceptance_of("code")
    for category in ("math", "text"):
        assert code > speculation.acceptance_of(category)


@pytest.mark.finding("sd-doubles")
@pytest.mark.speculative(**_PUBLISHED)
def test_speculation_doubles_generation(speculation: Speculation) -> None:
    """TG is at least twice as high with a draft of which 60 to 80 % are accepted."""
    accepted = speculation.result.counts.acceptance
    if not 0.6 <= accepted <= 0.8:
        pytest.skip(
            f"the finding is about 60 to 80 % acceptance, this draft has {accepted:.0%}: "
            "--asperf-role draft=MODEL"
        )
    assert_sd_gain(speculation, when_ratio=0.01, at_least="100%")


@pytest.mark.finding("rpc-overhead")
@pytest.mark.speculative(**_PUBLISHED)
def test_drafting_on_another_machine_costs_four_fifths(speculation: Speculation) -> None:
    """TG falls by 79 % or more with the draft on another machine; the output is the same."""
    assert speculation.overhead_on().change <= "-79%"


@pytest.mark.finding("rpc-51-57-ms")
@pytest.mark.speculative(**_PUBLISHED)
def test_a_draft_token_takes_51_to_57_ms_more_on_another_machine(
    speculation: Speculation,
) -> None:
    """A drafted token is 51 to 57 ms slower there than here, on machines of one kind."""
    assert 51 <= speculation.overhead_on().per_drafted_token <= 57
