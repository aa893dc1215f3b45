"""The conditional assertion about speculation, and losslessness, on figures for each case."""

import math
import random
from typing import Any, Literal

import pytest

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.config.spec import ModelRef, ModelSpec, Pairing
from pytest_asperf.engine_process import Margin, StepCosts
from pytest_asperf.measure.speculation_result import (
    Divergence,
    PromptRun,
    SpeculationResult,
    SuitePair,
)
from pytest_asperf.report.result_text import in_words
from pytest_asperf.verdicts.speculation import gain_verdict, lossless_verdict, sampled_verdict
from pytest_asperf.worker.speculation import Generation, Round
from tests.engine_facts import context

SUBJECT = Subject("SD gain", "live")
STEP_NS = 1_000_000
TRIMMED = context(rollback="trim")


def _alone(n: int, step_ns: int) -> Generation:
    rounds = [Round(0, 0, 1, 0, step_ns, 0)] * n
    return Generation(list(range(n)), n * step_ns, rounds)


def _speculative(n_rounds: int, draft_ns: int, verify_ns: int, rollback_ns: int = 0) -> Generation:
    """Rounds of two drafted tokens of which one is accepted."""
    rounds = [Round(2, 1, 2, 2 * draft_ns, verify_ns, rollback_ns)] * n_rounds
    elapsed_ns = n_rounds * (2 * draft_ns + verify_ns + rollback_ns)
    return Generation(list(range(2 * n_rounds)), elapsed_ns, rounds)


def _result(
    gain: tuple[float, float] | None = (0.1, 0.2),
    *,
    ratio: float = 5.0,
    verify: float = 1.4,
    divergences: tuple[Divergence, ...] = (),
    spoil: dict[str, Any] | None = None,
) -> SpeculationResult:
    """Return a measurement; its rounds emit 2 tokens for 2 / ratio + verify steps."""
    draft_ns = round(STEP_NS / ratio)
    costs = StepCosts(
        {size: (round(STEP_NS * (1 if size == 1 else verify)),) for size in (1, 2, 3)},
        {"first": (draft_ns,), "first_of_two": (), "next": (draft_ns,)},
        (_alone(20, draft_ns),),
    )
    arms = {
        "alone": _alone(40, STEP_NS),
        "speculative": _speculative(20, draft_ns, round(STEP_NS * verify)),
        **(spoil or {}),
    }
    run = PromptRun(0, speculative_first=False, **arms)
    low, high = gain or (-math.inf, math.inf)
    point = (low + high) / 2 if gain else 0.1
    spec = ModelRef(ModelSpec("m"), "F16")
    return SpeculationResult(
        pairing=Pairing(spec, spec, k=2, n_tokens=40),
        categories=("code",),
        pairs=(SuitePair((run,), costs, 2),) * 6,
        gain=Estimate(point, low, high, 6, method="made up", unit=CHANGE, counted="pairs"),
        divergences=divergences,
        contexts={"target": TRIMMED, "draft": TRIMMED},
        reloads=True,
        seed=1,
        ran=(),
    )


def _judged(
    result: SpeculationResult,
    when_ratio: float = 2.5,
    at_least: float = 0.0,
    only: Literal["above", "below"] | None = None,
) -> Outcome:
    rule: dict[str, Any] = {"when_ratio": when_ratio, "at_least": at_least, "only": only}
    return gain_verdict(result, SUBJECT, **rule).outcome


@pytest.mark.parametrize(
    ("gain", "ratio", "expected"),
    [
        ((0.1, 0.2), 5.0, Outcome.PASS),
        ((-0.2, -0.1), 5.0, Outcome.FAIL),
        ((-0.1, 0.1), 5.0, Outcome.INCONCLUSIVE),
        ((0.1, 0.2), 2.0, Outcome.FAIL),
        ((-0.2, -0.1), 2.0, Outcome.PASS),
        ((-0.1, 0.1), 2.0, Outcome.PASS),
        (None, 5.0, Outcome.INCONCLUSIVE),
        (None, 2.0, Outcome.INCONCLUSIVE),
    ],
)
def test_the_conditional(gain: tuple[float, float] | None, ratio: float, expected: Outcome) -> None:
    """At the ratio or above a gain must be shown, below it none may be."""
    assert _judged(_result(gain, ratio=ratio)) is expected


def test_a_gain_that_is_too_small_is_none() -> None:
    """The limit is the assertion's, and an interval across it is open."""
    assert _judged(_result((0.10, 0.12)), at_least=0.15) is Outcome.FAIL
    assert _judged(_result((0.10, 0.20)), at_least=0.15) is Outcome.INCONCLUSIVE
    assert _judged(_result((0.16, 0.20)), at_least=0.15) is Outcome.PASS


def test_one_side_alone_can_be_gated() -> None:
    """The direction that is not gated passes with any result."""
    slow, fast = _result(ratio=2.0), _result((-0.2, -0.1))
    assert _judged(slow, only="above") is Outcome.PASS
    assert _judged(fast, only="below") is Outcome.PASS
    assert _judged(slow, only="below") is Outcome.FAIL
    assert _judged(fast, only="above") is Outcome.FAIL


def test_the_break_even_stands_beside_the_rule() -> None:
    """With 2 tokens a round and C(3) = 1.4, two drafted tokens may cost 0.6 steps: ratio 3.33."""
    verdict = gain_verdict(_result(), SUBJECT, when_ratio=2.5, at_least=0.0, only=None)
    assert "break-even at 3.33 x, compared with the rule's 2.5 x" in in_words(verdict).measured


def test_where_verifying_costs_all_there_is_no_break_even() -> None:
    """A round that costs as much as it emits gains at no ratio, and the note has the reason."""
    result = _result((-0.3, -0.2), verify=2.0)
    verdict = gain_verdict(result, SUBJECT, when_ratio=2.5, at_least=0.0, only=None)
    costs = "a round emits 2.00, and verifying it costs 2.00 steps"
    assert f"no break-even: {costs}" in in_words(verdict).measured


def test_the_prediction_is_of_counts_and_costs() -> None:
    """2 tokens for 2 x 0.2 + 1.4 = 1.8 steps are 11 % more."""
    result = _result()
    assert result.predicted_gain.point == pytest.approx(2 / 1.8 - 1, rel=1e-4)
    assert result.counts.acceptance_by_position == (1.0, 0.0)
    assert (result.counts.acceptance, result.counts.mean_length) == (0.5, 2.0)
    assert sum(result.time_split.values()) == pytest.approx(1)


def test_a_prediction_has_what_rolling_back_takes() -> None:
    """0.2 steps of rollback in a round that emits 2 tokens for 1.8 leave nothing of the gain."""
    round_ns = (STEP_NS // 5, round(1.4 * STEP_NS), STEP_NS // 5)
    result = _result((-0.01, 0.01), spoil={"speculative": _speculative(20, *round_ns)})
    assert result.predicted_gain.point == pytest.approx(0, abs=1e-9)
    assert result.break_even_ratio == pytest.approx(result.ratio.point)
    plain_k, plain_gain = _result().best_k
    k, best_gain = result.best_k
    assert (k, best_gain < plain_gain) == (plain_k, True)


def test_unequal_work_is_invalid() -> None:
    """A variant that generated less cannot be compared."""
    result = _result(spoil={"alone": _alone(39, STEP_NS)})
    assert _judged(result) is Outcome.INVALID


def test_a_gain_beyond_what_acceptance_allows_is_invalid() -> None:
    """20 rounds of two tokens cannot be faster than 20 steps."""
    result = _result((1.9, 2.1), spoil={"speculative": _speculative(20, 0, STEP_NS // 3)})
    verdict = gain_verdict(result, SUBJECT, when_ratio=2.5, at_least=0.0, only=None)
    assert verdict.outcome is Outcome.INVALID
    assert "a round emits at most" in in_words(verdict).measured


def test_a_target_that_stalled_alone_is_no_gain_beyond_acceptance() -> None:
    """Next to busy loops 4032 became 8462 tok/s in all runs, and -4 % [-45, 536] by the pairs."""
    result = _result((-0.45, 5.36), spoil={"speculative": _speculative(20, 0, STEP_NS // 3)})
    assert not any(finding.guard is Guard.SD_BOUND for finding in result.guard_findings)


def _divergence(margin: float) -> Divergence:
    return Divergence(0, 7, (3, 4), Margin((margin, 0.0), (0.0, margin)))


def test_a_near_tie_is_lossless_and_its_margin_is_stated() -> None:
    """Rounding may decide between two tokens that are nearly tied."""
    verdict = lossless_verdict(_result(divergences=(_divergence(0.03),)), SUBJECT)
    assert verdict.outcome is Outcome.PASS
    assert "up to 0.03 below" in in_words(verdict).measured


def test_another_token_is_not_lossless() -> None:
    """A token that the target would not emit is found, and no gain is based on it."""
    result = _result(divergences=(_divergence(2.0),))
    verdict = lossless_verdict(result, SUBJECT)
    assert verdict.outcome is Outcome.FAIL
    assert "code prompt 1, token 8: 3 alone, 4 with the draft" in in_words(verdict).details[0]
    assert _judged(result) is Outcome.INVALID


def test_places_tell_the_targets_distribution_from_another() -> None:
    """Uniform places pass, a few cannot decide, and a shift of a tenth is found."""
    draws = random.Random(1)  # noqa: S311  # repeatable, not secret
    uniform = [draws.random() for _ in range(6000)]
    assert sampled_verdict(uniform, SUBJECT).outcome is Outcome.PASS
    assert sampled_verdict(uniform[:300], SUBJECT).outcome is Outcome.INCONCLUSIVE
    shifted = [place**1.3 for place in uniform]
    assert sampled_verdict(shifted, SUBJECT).outcome is Outcome.FAIL
