"""Bisection as arithmetic: the gates, their number, and their result."""

import math
from collections.abc import Callable, Collection
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.search import (
    Answer,
    Ending,
    GateAnswer,
    GateStep,
    Probe,
    gates_at_most,
    gates_to_name,
    next_step,
    steps,
)

PASS, FAIL = Outcome.PASS, Outcome.FAIL
UNDECIDED, BROKEN = Outcome.INCONCLUSIVE, Outcome.INVALID


def run(
    n: int, judge: Callable[[GateStep], GateAnswer]
) -> tuple[Answer, dict[GateStep, GateAnswer]]:
    """Bisect to the end, and assert the invariants of every bisection."""
    findings: dict[GateStep, GateAnswer] = {}
    while isinstance(step := next_step(n, findings), Probe):
        assert step.gate not in findings, "no gate is run twice"
        assert min(step.gate.base, step.gate.candidate) >= 0
        assert max(step.gate.base, step.gate.candidate) <= n
        assert step.gate.base < step.gate.candidate or step.purpose == "compare"
        findings[step.gate] = judge(step.gate)
        judged = [finding for finding in findings.values() if finding.is_judged]
        assert len(judged) <= gates_at_most(n), "more gates than the error was shared among"
    return step, findings


def levels(
    *of_builds: float, width: float = 0.01, limit: float = 0.05
) -> Callable[[GateStep], GateAnswer]:
    """Return a judge with each build's cost, the baseline's first."""

    def judge(gate: GateStep) -> GateAnswer:
        effect = of_builds[gate.candidate] / of_builds[gate.base] - 1
        return GateAnswer(FAIL if effect > limit else PASS, effect - width, effect + width)

    return judge


def one_step(n: int, culprit: int, bad: Collection[int] = ()) -> Callable[[GateStep], GateAnswer]:
    """Return a judge of a history with one culprit, in which some builds cannot be measured."""
    judge = levels(*(1.2 if build >= culprit else 1.0 for build in range(n + 1)))
    return lambda gate: GateAnswer(BROKEN) if gate.candidate in bad else judge(gate)


@pytest.mark.parametrize("n", range(1, 65))
def test_every_culprit_is_named_within_the_bound(n: int) -> None:
    """The gates of candidate, probes and confirmation together are at most ceil(log2 n) + 2."""
    for culprit in range(1, n + 1):
        answer, findings = run(n, one_step(n, culprit))
        assert answer == Answer(Ending.CULPRIT, culprit - 1, culprit)
        assert answer.step in findings
        assert len(findings) <= math.ceil(math.log2(n)) + 2 == gates_to_name(n)


@pytest.mark.parametrize("n", range(2, 65))
def test_a_bad_build_costs_two_gates_at_most(n: int) -> None:
    """With one build unusable, the culprit is named, or it and its neighbour are left."""
    for culprit in range(1, n + 1):
        # Next to the culprit, itself, and the start of the search.
        for bad in {culprit - 1, culprit, culprit + 1, n // 2} & set(range(1, n)):
            answer, findings = run(n, one_step(n, culprit, {bad}))
            if bad in {culprit - 1, culprit}:
                expected = (Ending.RANGE, bad - 1, bad + 1)
            else:
                expected = (Ending.CULPRIT, culprit - 1, culprit)
            assert (answer.ending, answer.after, answer.at) == expected
            assert len(findings) <= gates_to_name(n) + 2


@given(st.data())
def test_rows_of_bad_builds_leave_the_range_that_they_hide(data: st.DataObject) -> None:
    """The answer is the range between the usable builds around the culprit."""
    n = data.draw(st.integers(2, 64))
    culprit = data.draw(st.integers(1, n))
    bad = data.draw(st.sets(st.integers(1, n - 1), max_size=n))
    answer, findings = run(n, one_step(n, culprit, bad))
    after = max(i for i in range(culprit) if i not in bad)
    at = min(i for i in range(culprit, n + 1) if i not in bad)
    judged = sum(finding.is_judged for finding in findings.values())
    if "used up" in answer.why:
        assert judged >= gates_to_name(n) + 4
        assert answer.after <= after
        assert answer.at >= at
    else:
        ending = Ending.CULPRIT if at - after == 1 else Ending.RANGE
        assert (answer.ending, answer.after, answer.at) == (ending, after, at)


@given(st.data())
def test_any_outcomes_come_to_an_answer(data: st.DataObject) -> None:
    """For any results of the gates, it ends, and its answer is theirs."""
    n = data.draw(st.integers(1, 70))
    bounds = st.floats(-1, 3, allow_nan=False)

    def judge(_: GateStep) -> GateAnswer:
        low, high = sorted((data.draw(bounds), data.draw(bounds)))
        return GateAnswer(data.draw(st.sampled_from(Outcome)), low, high)

    answer, findings = run(n, judge)
    first = findings[GateStep(0, n)].outcome
    if first is not FAIL:
        assert answer.ending is (Ending.BROKEN if first is BROKEN else Ending.NO_REGRESSION)
        assert len(findings) == 1
        return
    assert answer.after == 0 or findings[GateStep(0, answer.after)].outcome is PASS
    assert findings[GateStep(0, answer.at)].outcome is FAIL
    if answer.ending is Ending.CULPRIT:
        assert answer.at - answer.after == 1
        assert findings[answer.step].outcome is FAIL
    else:
        assert answer.why
    assert all(GateStep(0, step.base) in findings or not step.base for step in steps(n, findings))


@given(st.integers(1, 70), st.data())
def test_a_run_goes_on_where_it_was(n: int, data: st.DataObject) -> None:
    """The results decide the next gate, in any order of finding or reading."""
    culprit = data.draw(st.integers(1, n))
    answer, findings = run(n, one_step(n, culprit))
    shuffled = dict(data.draw(st.permutations(list(findings.items()))))
    assert next_step(n, shuffled) == answer


@given(st.integers(2, 64), st.data())
def test_a_build_that_was_skipped_may_be_tried_again(n: int, data: st.DataObject) -> None:
    """A failed build that can be made now, and is forgotten, has no effect on the answer."""
    culprit = data.draw(st.integers(1, n))
    bad = data.draw(st.sets(st.integers(1, n - 1)))
    _, findings = run(n, one_step(n, culprit, bad))
    findings = {gate: finding for gate, finding in findings.items() if finding.is_judged}
    while isinstance(step := next_step(n, findings), Probe):
        findings[step.gate] = one_step(n, culprit)(step.gate)
    assert step == Answer(Ending.CULPRIT, culprit - 1, culprit) or "used up" in step.why


@given(st.data())
def test_trying_again_spends_no_more_error(data: st.DataObject) -> None:
    """However often builds that could not be judged are tried again, N gates are judged at most."""
    n = data.draw(st.integers(2, 40))
    findings = {GateStep(0, n): GateAnswer(FAIL, 0.1, 0.3)}
    for _ in range(4):
        while isinstance(step := next_step(n, findings), Probe):
            findings[step.gate] = GateAnswer(data.draw(st.sampled_from(Outcome)), 0.0, 0.3)
        findings = {gate: finding for gate, finding in findings.items() if finding.is_judged}
        assert len(findings) <= gates_at_most(n)


def test_one_build_is_its_own_answer() -> None:
    """With nothing between the two, the candidate's own gate is the answer."""
    answer, findings = run(1, one_step(1, 1))
    assert answer == Answer(Ending.CULPRIT, 0, 1)
    assert list(findings) == [GateStep(0, 1)]


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [(PASS, Ending.NO_REGRESSION), (UNDECIDED, Ending.NO_REGRESSION), (BROKEN, Ending.BROKEN)],
)
def test_a_candidate_that_does_not_fail_is_not_bisected(outcome: Outcome, ending: Ending) -> None:
    """One gate, and it is over."""
    answer, findings = run(40, lambda _: GateAnswer(outcome))
    assert answer.ending is ending
    assert str(outcome) in answer.why
    assert len(findings) == 1


def test_an_undecided_build_is_passed_over() -> None:
    """Its neighbour is gated instead; if that does not help, the answer is a range."""
    judge = one_step(6, 5)
    answer, _ = run(6, lambda gate: GateAnswer(UNDECIDED) if gate.candidate == 3 else judge(gate))
    assert answer == Answer(Ending.CULPRIT, 4, 5)
    answer, _ = run(6, lambda gate: GateAnswer(UNDECIDED) if gate.candidate == 5 else judge(gate))
    assert (answer.ending, answer.after, answer.at) == (Ending.RANGE, 4, 6)
    assert answer.why == "no build between the two could be judged PASS or FAIL"


def test_several_steps_are_mapped() -> None:
    """A step that is not all of the candidate's effect shows; the map has every step."""
    cost = [1, 1, 1.3, 1.3, 1.3, 1.3, 1.69, 1.69]
    answer, findings = run(7, levels(*cost))
    assert (answer.ending, answer.after, answer.at) == (Ending.MAP, 1, 2)
    assert answer.why == "builds that fail differ: the slowest against the fastest is FAIL"
    assert steps(7, findings) == (GateStep(1, 2), GateStep(5, 6))


@given(st.data())
def test_an_effect_that_moves_from_gate_to_gate_is_one_step(data: st.DataObject) -> None:
    """Intervals of equal builds that do not meet are no second step where one gate equals them."""
    n = data.draw(st.integers(1, 40))
    culprit = data.draw(st.integers(1, n))
    of_machine = st.floats(0.5, 2)

    def judge(gate: GateStep) -> GateAnswer:
        effect = 0.6 * data.draw(of_machine) * (gate.base < culprit <= gate.candidate)
        return GateAnswer(FAIL if effect else PASS, effect - 0.001, effect + 0.001)

    answer, findings = run(n, judge)
    assert answer == Answer(Ending.CULPRIT, culprit - 1, culprit)
    assert len(findings) <= gates_to_name(n) + 1


def test_the_step_against_its_predecessor_is_no_second_step() -> None:
    """One build gated against two others: +55 % [53, 60] and +61 % [60, 63], as was measured."""
    seen = {
        GateStep(0, 4): GateAnswer(FAIL, 0.531, 0.600),
        GateStep(0, 2): GateAnswer(BROKEN),
        GateStep(0, 3): GateAnswer(PASS, -0.011, 0.013),
        GateStep(3, 4): GateAnswer(FAIL, 0.601, 0.625),
    }
    answer, _ = run(4, seen.__getitem__)
    assert answer == Answer(Ending.CULPRIT, 3, 4)


@pytest.mark.parametrize("outcome", [FAIL, UNDECIDED, BROKEN])
def test_intervals_apart_that_no_gate_overrules_are_several_steps(outcome: Outcome) -> None:
    """Only a PASS of the slowest against the fastest makes one step of them."""
    judge = levels(1, 1, 1.3, 1.3, 1.3, 1.3, 1.69, 1.69)
    compared = GateStep(4, 7)
    answer, findings = run(7, lambda gate: GateAnswer(outcome) if gate == compared else judge(gate))
    assert compared in findings
    assert answer.ending is Ending.MAP
    assert str(outcome) in answer.why


def test_fixed_and_broken_again_is_mapped() -> None:
    """A candidate that is worse again by another size has a map that goes up, down and up."""
    cost = [1, 1.5, 1.5, 1.5, 1, 1, 1, 1.2]
    answer, findings = run(7, levels(*cost))
    assert answer.ending is not Ending.CULPRIT or answer.at == 7
    cost = [1, 1.5, 1.5, 1.5, 1.5, 1, 1, 1.2]
    answer, findings = run(7, levels(*cost))
    assert answer.ending is Ending.MAP
    assert steps(7, findings) == (GateStep(0, 1), GateStep(4, 5), GateStep(6, 7))


def test_creeping_is_mapped() -> None:
    """If each build adds less than the tolerance, no build is the culprit."""
    answer, findings = run(8, levels(*(1.02**i for i in range(9)), width=0.004))
    assert answer.ending is Ending.MAP
    assert "directly is PASS" in answer.why
    assert steps(8, findings) == tuple(GateStep(i, i + 1) for i in range(8))


def test_a_map_is_evenly_spaced() -> None:
    """If there are more builds than a map has gates, no gap is left twice as wide as another."""
    cost = [1.3 if i >= 40 else 1.0 for i in range(100)] + [1.69] * 101
    answer, findings = run(200, levels(*cost))
    assert answer.ending is Ending.MAP
    mapped = sorted({0} | {gate.candidate for gate in findings if gate.base == 0})
    assert max(b - a for a, b in pairwise(mapped)) <= 200 / 8
    assert len(steps(200, findings)) == 2


def test_a_map_passes_over_bad_builds() -> None:
    """A build that cannot be measured leaves a gap, and the rest is mapped."""
    judge = levels(*(1.02**i for i in range(9)), width=0.004)
    answer, findings = run(8, lambda g: GateAnswer(BROKEN) if g.candidate == 6 else judge(g))
    assert answer.ending is Ending.MAP
    assert GateStep(5, 7) in steps(8, findings)


def test_sides_that_cannot_be_held_against_each_other_name_no_culprit() -> None:
    """An unconfirmed answer is marked."""
    judge = one_step(8, 4)
    answer, _ = run(8, lambda gate: GateAnswer(BROKEN) if gate == GateStep(3, 4) else judge(gate))
    assert (answer.ending, answer.after, answer.at) == (Ending.RANGE, 3, 4)
    assert answer.why == "the two could not be compared"
