"""Results of every kind in words, and as JSON and back."""

import json
from dataclasses import is_dataclass, replace
from typing import Any, Final, get_args

import pytest

from pytest_asperf.analysis.capacity import Fit, MemoryCapacity
from pytest_asperf.analysis.guards.guard import Guard
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import (
    AnyResult,
    Differs,
    EngineFailure,
    Every,
    FitsMemory,
    GainAnswer,
    GainRule,
    Growth,
    JudgedFigure,
    Limit,
    MemoryGrowth,
    Ordered,
    ParetoFront,
    Part,
    Parting,
    RunsAsBaseline,
    SameTexts,
    SameTokens,
    SameVectors,
    SpeculationGain,
    TextParting,
    VariantValues,
    WithinLimits,
    WithinTolerance,
    Words,
)
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE, Estimate
from pytest_asperf.analysis.verdict import Verdict, guarded
from pytest_asperf.records.codec import declared_types, decode_as, encode
from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.report.result_text import in_words


def _estimate(point: float, unit: str = CHANGE, half: float = 0.02) -> Estimate:
    return Estimate(point, point - half, point + half, 9, method="m", unit=unit, counted="pairs")


def _part(label: str, outcome: Outcome, limit: Limit) -> Part:
    return Part(label=label, outcome=outcome, result=WithinLimits(limits=(limit,)))


_VALUES: Final = VariantValues(values=(40.0, 50.0), unit="tok/s")
_RATE: Final = JudgedFigure("tg8", _estimate(42.0, "tok/s", 1.0), at_least=40.0)
_LIMIT: Final = Limit(">=", 40.0, "tok/s")
_PARTING: Final = Parting(
    prompt=0,
    category="code",
    position=6,
    tokens=(3, 4),
    batched=(0.0, 0.9),
    single=(0.0, 0.8),
    is_tie=False,
)
_RULE: Final = GainRule(when_ratio=2.5, at_least=0.0, answers=(GainAnswer("above", "no gain"),))
_PARTED: Final = (
    "outputs part on 1 of 2 prompts, first differences up to 0.9 below the likeliest token's logit"
)
_NO_GAIN: Final = (
    "no gain where the rule promises one: gain -10.0 % [-12.0, -8.0] at a ratio of 3.000x "
    "[2.980, 3.020], break-even at 4 x, compared with the rule's 2.5 x"
)
#: A result, its figures, and its limit and measurement in words.
CASES: Final[tuple[tuple[AnyResult, tuple[JudgedFigure, ...], str, str], ...]] = (
    (WithinLimits(limits=(_LIMIT,)), (_RATE,), "at least 40 tok/s", "42.0 tok/s [41.0, 43.0]"),
    (
        WithinLimits(limits=(_LIMIT,), counted="pair"),
        (),
        "at least 40 tok/s",
        "no pair was finished",
    ),
    (
        WithinTolerance(tolerance=0.05, fails_above=0.04, variants=_VALUES, mean=0.1),
        (JudgedFigure("tg8", _estimate(1.2, ""), at_most=1.05),),
        "within +5 %",
        "40 → 50 tok/s, +20.0 % slower [18.0, 22.0], but up to 10 % on average over the pairs",
    ),
    (
        Every(parts=tuple(_part(name, Outcome.FAIL, _LIMIT) for name in "ab")),
        (_RATE, _RATE),
        "at least 40 tok/s",
        "fails in 2 of 2; a 42.0 tok/s [41.0, 43.0], b 42.0 tok/s [41.0, 43.0]",
    ),
    (
        Every(
            parts=(
                _part("mean KLD", Outcome.PASS, Limit("<", 0.02, "nats")),
                _part("tops changed", Outcome.PASS, Limit("<", 0.1, SHARE)),
            ),
            of="quantities",
        ),
        (
            JudgedFigure("mean KLD", Estimate.exact(0.005, "nats")),
            JudgedFigure("tops changed", Estimate.exact(0.05, SHARE)),
        ),
        "mean KLD below 0.02 nats and tops changed below 10 %",
        "mean KLD 0.005000 nats, tops changed 5.000 %",
    ),
    (
        Ordered(direction="rising", labels=("F16", "Q8_0", "Q4_0")),
        (JudgedFigure("F16 → Q8_0", _estimate(0.1)), JudgedFigure("Q8_0 → Q4_0", _estimate(-0.1))),
        "rising along F16, Q8_0, Q4_0",
        "1 of 2 steps shown; Q8_0 → Q4_0 -10.0 % [-12.0, -8.0]",
    ),
    (
        ParetoFront(objectives=("size",), others=("Q8_0", "Q4_0"), against=("Q4_0",)),
        (JudgedFigure("Q8_0 size", _estimate(0.1)), JudgedFigure("Q4_0 size", _estimate(-0.1))),
        "on the Pareto front of size",
        "dominated by Q4_0 size -10.0 % [-12.0, -8.0]",
    ),
    (
        SpeculationGain(rule=_RULE, rates=_VALUES, break_even=4.0, mean_length=2.0, verifying=1.1),
        (JudgedFigure("gain", _estimate(-0.1)), JudgedFigure("ratio", _estimate(3.0, RATIO))),
        "above 0 % at a speed ratio of 2.5 x or more, not above 0 % at a lower one",
        _NO_GAIN,
    ),
    (
        SameTokens(n_prompts=2, parted=(_PARTING,), near_tie=0.5),
        (),
        "first differences within 0.5 of the likeliest token's logit",
        _PARTED,
    ),
    (
        SameTexts(n_prompts=4, n_same=3, n_tokens=64, parted=(TextParting(1, 9, ("a", "b")),)),
        (),
        "identical",
        "3 of 4 outputs of 64 tokens are the same",
    ),
    (
        FitsMemory(fit=Fit(MemoryCapacity(2**33, is_shared=False, basis="a card"), 2**32, 2**31)),
        (),
        "weights below the card's memory, with the KV cache below 8 GiB",
        "weights 4 GiB of 8 GiB, with the KV cache 6 GiB",
    ),
    (
        MemoryGrowth(
            tolerance=0.05,
            counted_slack=2**20,
            process_slack=2**23,
            left_slack=2**21,
            parts=(
                Growth("weights", 2**30, 2**31, is_too_much=True),
                Growth("peak RSS", 2**31, 2**31, is_too_much=False),
                Growth("steady RSS", 2**31, 2**31, is_too_much=False),
            ),
        ),
        (),
        (
            "at most +5 % of each, and 1 MiB by the engine's count or 8 MiB of its process, of "
            "which 2 MiB left by requests"
        ),
        "weights: 1 GiB → 2 GiB",
    ),
    (
        SameVectors(drift=0.0, between=0.5),
        (
            JudgedFigure("a", Estimate.exact(0.9, RATIO), at_least=0.995),
            JudgedFigure("b", Estimate.exact(0.99, RATIO)),
            JudgedFigure("c", Estimate.exact(0.004, SHARE), at_most=0.02),
            JudgedFigure("d", Estimate.exact(0.1, SHARE), at_most=0.5),
        ),
        "every cosine at least 0.995000, lengths within 2 %",
        (
            "smallest cosine 0.900000 from the baseline, 0.990000 in a batch from alone, lengths "
            "changed by 0.4 % at most, one number by 10 % of its spread over texts"
        ),
    ),
    (
        Differs(share=0.05, device="GPU"),
        (JudgedFigure("latency", _estimate(0.01)),),
        "more than 5 % from the GPU's",
        "+1.0 % [-1.0, 3.0]",
    ),
    (
        RunsAsBaseline(failures=(EngineFailure("crashed", "signal 11"), EngineFailure("hung"))),
        (),
        "runs as the baseline does",
        "candidate crashed (signal 11), then hung, baseline ran twice in between",
    ),
    (
        RunsAsBaseline(max_seconds=60),
        (),
        "as in the baseline",
        "not begun: the budget of 60 s was spent",
    ),
    (Words(threshold="below 1 %", measured="2 %"), (), "below 1 %", "2 %"),
)


def _verdict(result: AnyResult, figures: tuple[JudgedFigure, ...]) -> Verdict:
    return Verdict(outcome=Outcome.FAIL, subject="it", result=result, figures=figures)


@pytest.mark.parametrize(("result", "figures", "limit", "measured"), CASES)
def test_a_result_in_words(
    result: AnyResult, figures: tuple[JudgedFigure, ...], limit: str, measured: str
) -> None:
    """Its limit and its measurement are made of facts, which JSON keeps."""
    verdict = _verdict(result, figures)
    data: Any = json.loads(json.dumps(encode(verdict)))
    assert decode_as(AnyRecord, data) == verdict
    said = in_words(verdict)
    assert (said.threshold, said.measured) == (limit, measured)


def test_every_kind_of_result_has_words() -> None:
    """None is left out above."""
    assert {type(result) for result, *_ in CASES} == set(get_args(AnyResult))


def test_a_result_keeps_no_sentence() -> None:
    """Its texts are names and units; only a problem comes in the words of who reported it."""
    waiting: list[Any] = [AnyResult]
    seen, texts = set[Any](), set[str]()
    while waiting:
        for kind in {waiting.pop()} - seen - {Words}:
            seen.add(kind)
            fields: dict[str, Any] = declared_types(kind) if isinstance(kind, type) else {}
            waiting += [each for each in fields.values() if get_args(each) or is_dataclass(each)]
            waiting += [each for each in get_args(kind) if get_args(each) or is_dataclass(each)]
            texts |= {name for name, declared in fields.items() if declared is str}
    names = {"label", "unit", "counted", "method", "category", "device", "did", "manner", "basis"}
    assert texts == names | {"problem"}


def test_a_guard_is_put_before_the_result() -> None:
    """INVALID hides the figure, INCONCLUSIVE is said after it, and a failure before both."""
    verdict = _verdict(WithinLimits(limits=(_LIMIT,)), (_RATE,))
    doubted = guarded(verdict, [Guard.ESTIMATE.finding("it is a guess", "a measurement")])
    assert in_words(doubted).measured == "42.0 tok/s [41.0, 43.0], but it is a guess"
    invalid = guarded(doubted, [Guard.THROTTLED.finding("it was hot", "a steady clock")])
    assert in_words(invalid).measured == "it was hot"
    recorded = replace(invalid, source="recorded")
    assert in_words(recorded).measured == "throttled: it was hot"
    assert in_words(replace(verdict, problem="it crashed")).measured == "it crashed"
