"""How often a bisection is wrong: the real search over the real sequential test, on made noise."""

import math
import random

import pytest

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.bisect.search import (
    Answer,
    Ending,
    GateAnswer,
    GateStep,
    Probe,
    gates_at_most,
    next_step,
)

N, TOLERANCE, RUNS = 16, 0.05, 60


def bisect(effect: float, culprit: int, noise: float, coin: random.Random) -> Answer:
    """Bisect builds of which those from the culprit on cost more, with a stall now and then."""
    findings: dict[GateStep, GateAnswer] = {}
    while isinstance(step := next_step(N, findings), Probe):
        is_between = step.gate.base < culprit <= step.gate.candidate
        shift = math.log1p(effect) if is_between else 0.0
        n_gates = gates_at_most(N)
        test = PairedTest(TOLERANCE, max_pairs=120, beta=BETA / n_gates, comparisons=n_gates)
        outcome = None
        while outcome is None:
            stall = 0.18 * (coin.random() < 0.1) * coin.choice((-1, 1))
            outcome = test.update(shift + coin.gauss(0, noise) + stall)
        estimate = test.estimate
        findings[step.gate] = GateAnswer(Outcome(outcome), estimate.low, estimate.high)
    return step


@pytest.mark.parametrize("noise", [0.002, 0.03])
@pytest.mark.parametrize("effect", [TOLERANCE, 0.2])
def test_a_wrong_build_is_named_in_at_most_5_percent(effect: float, noise: float) -> None:
    """At the tolerance itself, where a PASS is likeliest to be wrong, and well beyond it."""
    coin = random.Random(f"{effect} {noise}")  # noqa: S311  # replayed
    wrong = right = 0
    for _ in range(RUNS):
        culprit = coin.randint(1, N)
        answer = bisect(effect, culprit, noise, coin)
        named = answer.ending is Ending.CULPRIT
        right += named and answer.at == culprit
        wrong += named and answer.at != culprit
    assert wrong <= 0.05 * RUNS
    assert right >= 0.8 * RUNS


def test_equal_builds_have_no_culprit() -> None:
    """The first gate ends it, but for the share in which equal builds FAIL."""
    coin = random.Random(4)  # noqa: S311  # replayed
    endings = [bisect(0.0, 1, 0.03, coin).ending for _ in range(RUNS)]
    assert endings.count(Ending.NO_REGRESSION) >= 0.95 * RUNS
