"""Verdicts of a gate on logits and on speculation, from figures made up for each case."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.analysis.facts import ScoredText
from pytest_asperf.analysis.results import Limit
from pytest_asperf.analysis.stats.estimate import RATIO
from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Outcome, Verdict
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelRef, ModelSpec, Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import Margin
from pytest_asperf.measure.ab_logits import Drift, LogitsComparison
from pytest_asperf.measure.ab_ppl import PplComparison
from pytest_asperf.measure.ab_speed import ABResult, Budget, WorkloadPairs
from pytest_asperf.measure.embeddings import EmbeddedTexts, EmbeddingsComparison
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.speculation_result import Counts, Divergence, SpeculationComparison
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text, lab_note
from pytest_asperf.verdicts.embeddings import embeddings_verdict
from pytest_asperf.verdicts.gate import (
    logits_verdict,
    ppl_verdict,
    speculation_verdict,
    speed_verdict,
)
from pytest_asperf.verdicts.ratio import PairedClaim, paired_verdict
from tests.engine_facts import ENGINE, context, loaded

Vectors = tuple[tuple[float, ...], ...]

RAN = Provenance("m in old", Path("m.gguf"), "0" * 64, ENGINE, loaded(), None, EngineSettings())
CANDIDATE = replace(RAN, model="m in new")
MODEL = ModelRef(ModelSpec("m"))


def _drift(ran: Provenance, kld: Sequence[float]) -> Drift:
    return Drift(tuple(kld), (True,) * len(kld), ran)


def _logits(base: Sequence[float], candidate: Sequence[float]) -> LogitsComparison:
    return LogitsComparison((_drift(RAN, base), _drift(CANDIDATE, candidate)), 1.0)


@pytest.mark.parametrize(
    ("base", "candidate", "outcome"),
    [
        ([0.004] * 100, [0.005] * 100, Outcome.PASS),
        ([0.0] * 100, [0.03] * 100, Outcome.FAIL),  # all a little
        ([0.0] * 100, [0.0] * 99 + [1.5], Outcome.FAIL),  # one position alone
        ([0.03] * 100, [0.05] * 100, Outcome.PASS),  # as coarse in the baseline
        ([0.03] * 100, [0.07] * 100, Outcome.FAIL),
        ([3.0] * 100, [3.0] * 100, Outcome.INVALID),  # in both, so nothing about the candidate
        ([1.2] * 100, [2.5] * 100, Outcome.FAIL),  # more than twice as far as in the baseline
        ([1.2] * 100, [0.01] * 100, Outcome.PASS),  # mended
        ([0.15] * 100, [0.25] * 100, Outcome.INVALID),  # less than twice, and above any limit
        ([12.0] + [0.0] * 99, [12.0] + [0.0] * 99, Outcome.INVALID),
        ([12.0] + [0.0] * 99, [12.0] + [0.3] * 99, Outcome.FAIL),  # the mean is the candidate's own
    ],
)
def test_logits_are_judged_by_mean_and_by_the_worst_position(
    base: list[float], candidate: list[float], outcome: Outcome
) -> None:
    """Healthy builds pass, and twice the baseline's drift up to a limit."""
    assert logits_verdict(_logits(base, candidate)).outcome is outcome


@pytest.mark.parametrize(
    ("lengths", "one", "outcome"),
    [
        ((24, 24, 24, 24), 0.03, Outcome.FAIL),
        ((24, 24, 24, 24), 0.01, Outcome.PASS),
        ((6, 24, 24, 24), 0.03, Outcome.PASS),  # as few positions as a near-tie may have
        ((), 0.03, Outcome.FAIL),  # all have as many
    ],
)
def test_logits_of_one_user_are_judged(
    lengths: tuple[int, ...], one: float, outcome: Outcome
) -> None:
    """The mean of all users hides a user whose logits are wrong."""
    n, total = (lengths or (24,))[0], sum(lengths) or 96
    base, candidate = (
        replace(_drift(ran, [kld] * n + [0.0] * (total - n)), users=4, lengths=lengths)
        for ran, kld in ((RAN, 0.0), (CANDIDATE, one))
    )
    assert logits_verdict(LogitsComparison((base, candidate), 1.0)).outcome is outcome


#: Vectors of two texts, and a batch in which the second text has the first one's.
_ALONE = ((1.0, 0.0), (0.0, 1.0))
_MIXED = (_ALONE[0], _ALONE[0])


def _longer(share: float) -> Vectors:
    """The vectors, the last of which is longer."""
    return _ALONE[0], (0.0, 1 + share)


@pytest.mark.parametrize(
    ("base", "candidate", "outcome"),
    [
        ((_ALONE, _ALONE), (_ALONE, _ALONE), Outcome.PASS),
        ((_ALONE, _ALONE), (_ALONE, _MIXED), Outcome.FAIL),
        ((_ALONE, _MIXED), (_ALONE, _MIXED), Outcome.INVALID),  # batches are wrong in both
        ((_ALONE, _MIXED), (_ALONE, _ALONE), Outcome.PASS),
        ((_ALONE, _MIXED), (_ALONE[::-1], _MIXED), Outcome.FAIL),  # other vectors in addition
        ((_ALONE, _ALONE), (_longer(0.015), _longer(0.015)), Outcome.PASS),
        ((_ALONE, _ALONE), (_longer(0.025), _longer(0.025)), Outcome.FAIL),
        ((_ALONE, _ALONE), (_longer(-0.025), _longer(-0.025)), Outcome.FAIL),
    ],
)
def test_vectors_are_judged_against_the_baseline_and_in_batches(
    base: tuple[Vectors, Vectors], candidate: tuple[Vectors, Vectors], outcome: Outcome
) -> None:
    """Batches that are wrong in both builds say nothing about the candidate."""
    sides = EmbeddedTexts(*base, RAN), EmbeddedTexts(*candidate, CANDIDATE)
    assert embeddings_verdict(EmbeddingsComparison(*sides, 1.0)).outcome is outcome


def test_the_note_on_logits_says_where_and_whether_the_baseline_agrees() -> None:
    """Position and likeliest token of both are in it."""
    note = lab_note(logits_verdict(_logits([0.0] * 100, [0.0] * 7 + [9.0] * 93)))
    assert "largest 9 at position 7 of 100" in note
    assert "the baseline's agree" in note


def test_the_note_on_turns_says_in_which_one_the_cache_was_wrong() -> None:
    """Positions count from the beginning of the message's own conversation."""
    base, candidate = (
        Drift((0.0,) * 5 + (kld,) * 3, (True,) * 8, ran, firsts=(10, 30), are_turns=True)
        for ran, kld in ((RAN, 0.0), (CANDIDATE, 4.0))
    )
    note = lab_note(logits_verdict(LogitsComparison((base, candidate), 1.0)))
    assert "largest 4 at position 31 of 34 of turn 2" in note
    assert "what the cache keeps of an earlier prompt" in note


def _speculation(
    counts: tuple[Sequence[int], Sequence[int]],
    *,
    ratio: float = 0.0,
    drafted: int = 64,
    divergences: tuple[Divergence, ...] = (),
) -> SpeculationComparison:
    """Return a gate whose pairs are all alike, with the accepted tokens of each prompt."""
    test = PairedTest(max_pairs=30)
    while test.outcome is None:
        test.update(ratio)
    equal = [Pair((1000,), (1000,), candidate_first=False)] * test.n
    pairs = WorkloadPairs(Workload("sd", 64), test, equal)
    result = _result(pairs, Budget(0.05, 30, 60, 1))
    base, candidate = (Counts(64, tuple((drafted, n) for n in side)) for side in counts)
    categories = ("code",) * len(counts[0])
    return SpeculationComparison(
        Pairing(MODEL, MODEL), result, (base, candidate), categories, divergences
    )


def test_speculation_that_is_as_fast_and_as_often_accepted_passes() -> None:
    """All three parts are shown, and the counts of both builds stated."""
    verdict = speculation_verdict(_speculation(([40] * 12, [40] * 12)), 2)
    assert verdict.outcome is Outcome.PASS
    assert "3 of 3 shown" in in_words(verdict).measured
    assert "accepted 480/768, 480/768" in in_words(verdict).measured


def test_acceptance_that_dies_fails_at_full_speed() -> None:
    """One of hundreds accepted is a FAIL, for any time."""
    found = _speculation(([34, 30, 38] * 4, [1] + [0] * 11))
    verdict = speculation_verdict(found, 2)
    assert verdict.outcome is Outcome.FAIL
    assert "change of the share that the draft supplies -5" in in_words(verdict).measured
    assert "accepted 408/768, 1/768" in in_words(verdict).measured
    assert "how it is rolled back" in advice_text(verdict.advice)


def test_acceptance_that_was_low_may_not_die_either() -> None:
    """If the draft supplies little, half of it may be lost."""
    assert speculation_verdict(_speculation(([6] * 12, [0] * 12)), 2).outcome is Outcome.FAIL
    assert speculation_verdict(_speculation(([6] * 12, [5] * 12)), 2).outcome is Outcome.PASS


def test_only_the_upper_bound_of_the_supplied_share_pays_for_other_tests() -> None:
    """A PASS needs the lower bound, whose error is not shared; a FAIL the upper one."""
    found = _speculation(([40] * 12, [40, 38] * 6))
    alone, shared = (
        {one.label: one.estimate for one in speculation_verdict(found, n).figures} for n in (1, 40)
    )
    label = "change of the share that the draft supplies"
    assert alone[label].low == shared[label].low
    assert alone[label].high < shared[label].high
    assert shared[label].confidence == pytest.approx(1 - 0.05 - 0.05 / 40)


def test_few_prompts_that_differ_are_open() -> None:
    """A scatter across the limit is neither."""
    found = _speculation(([40] * 4, [40, 10, 40, 10]))
    assert speculation_verdict(found, 2).outcome is Outcome.INCONCLUSIVE


def test_slower_speculation_fails() -> None:
    """The time is judged as that of any workload."""
    verdict = speculation_verdict(_speculation(([40] * 12, [40] * 12), ratio=0.3), 2)
    assert verdict.outcome is Outcome.FAIL
    assert "fails in 1 of 3; time 0.001 → 0.001 ms, +35.0 % slower" in in_words(verdict).measured


@pytest.mark.parametrize(("gap", "outcome"), [(0.1, Outcome.PASS), (4.0, Outcome.FAIL)])
def test_output_may_part_at_near_ties_only(gap: float, outcome: Outcome) -> None:
    """Another output than the target's own is a FAIL, and the note has the place."""
    parting = Divergence(3, 7, (1, 2), Margin((0.0, gap), (0.0, gap)))
    found = _speculation(([40] * 12, [40] * 12), divergences=(parting,))
    verdict = speculation_verdict(found, 2)
    assert verdict.outcome is outcome
    assert "code prompt 4, token 8: 1 alone, 2 with the draft" in lab_note(verdict)


def test_a_baseline_that_accepts_nothing_is_no_baseline() -> None:
    """Dead speculation in the baseline leaves nothing to lose, and is INVALID."""
    verdict = speculation_verdict(_speculation(([0] * 12, [0] * 12)), 2)
    assert verdict.outcome is Outcome.INVALID
    assert "accepts none of 768" in in_words(verdict).measured


def test_users_who_wait_for_slots_are_a_warning() -> None:
    """A gate compares the users' service: fewer slots in the candidate may be its regression."""
    test = TotalTimeTest(max_pairs=5)
    pairs = WorkloadPairs(Workload("tg", 64, users=4), test, [])
    pairs.add(Pair((1,), (1,), candidate_first=False))
    result = _result(pairs, Budget(0.05, 5, 60, 1))
    assert "queueing" not in lab_note(speed_verdict(pairs, result))
    base, candidate = (
        replace(ran, context=context(states=({"slots": n},)))
        for ran, n in zip(result.ran, (4, 2), strict=True)
    )
    verdict = speed_verdict(pairs, replace(result, ran=(base, candidate)))
    assert verdict.outcome is not Outcome.INVALID
    assert "queueing: candidate: the server has 2 slots for 4 users" in lab_note(verdict)


@pytest.mark.parametrize("is_candidate", [True, False])
def test_what_a_server_adds_to_its_library_is_said(*, is_candidate: bool) -> None:
    """Milliseconds of a request and microseconds of a token, for a server on either place."""
    test = RatioTest(0.0, 1.0, max_pairs=5)
    pairs = WorkloadPairs(Workload("ttft", 64), test, [])
    costs = ((40_000_000,) * 2, (46_400_000,) * 2)
    base, candidate = costs if is_candidate else costs[::-1]
    for _ in range(5):
        pairs.add(Pair(base, candidate, candidate_first=False))
    result = _result(pairs, Budget(0.05, 5, 60, 1, claim=(0.0, 1.0)))
    served = replace(RAN, loaded=loaded(served="s"))
    names, ran = ("llama_server", "llama_cpp"), (RAN, served)
    if not is_candidate:
        names, ran = names[::-1], ran[::-1]
    claim = PairedClaim(names, "tg64", (Limit("<", 1.0, RATIO),), is_rate=False)
    said = "llama_server takes +6.4 ms a request, +100 us a token of 64 (median of 5 pairs"
    assert said in lab_note(paired_verdict(replace(result, ran=ran), claim))


def _speed(candidate_ns: Sequence[int], *, tolerance: float = 0.05, n: int = 30) -> Verdict:
    """Return the verdict on pairs of which the baseline's runs last 1000 ns."""
    base = (1000,) * len(candidate_ns)
    test = TotalTimeTest(tolerance, max_pairs=n)
    pairs = WorkloadPairs(Workload("tg", 64), test, [])
    while test.outcome is None:
        pairs.add(Pair(base, tuple(candidate_ns), candidate_first=False))
    return speed_verdict(pairs, _result(pairs, Budget(tolerance, n, 60, 1)))


def _result(pairs: WorkloadPairs, budget: Budget) -> ABResult:
    return ABResult(
        (pairs,),
        draws_cores=False,
        budget=budget,
        ran=(RAN, CANDIDATE),
        same_tokens=True,
    )


def test_slow_runs_in_the_minority_fail_by_total_time() -> None:
    """The judged interval is the total's, and the two speeds of the candidate are reported."""
    verdict = _speed([1000] * 6 + [1500] * 4)
    assert verdict.outcome is Outcome.FAIL
    assert in_words(verdict).measured.startswith("1,000,000 → 833,333 tok/s, +20.00 % slower [")
    assert in_words(verdict).measured.endswith("] in all")
    assert verdict.figures[0].estimate.low > 1.05
    assert "two speeds: the candidate's slowest quarter of runs needs 1.50 times" in lab_note(
        verdict
    )


def test_an_accepted_slowdown_passes_with_its_interval_within() -> None:
    """+28 % of 40 % is a PASS, and only one speed is reported."""
    verdict = _speed([1280] * 10, tolerance=0.4)
    assert verdict.outcome is Outcome.PASS
    assert verdict.figures[0].estimate.high <= 1.4
    assert "two speeds" not in lab_note(verdict)
    assert "total time: +28" in lab_note(verdict)
    assert "PASS excludes +40 %; FAIL does not, and shows more than +33.3 %" in lab_note(verdict)


def test_slow_pairs_among_fast_ones_say_why_they_do_not_pass() -> None:
    """An interval within the tolerance of an INCONCLUSIVE is explained by the mean."""
    test = TotalTimeTest(max_pairs=35)
    pairs = WorkloadPairs(Workload("tg", 64), test, [])
    while test.outcome is None:
        candidate_ns = 2000 if test.n % 7 == 4 else 1000
        pairs.add(Pair((1000,), (candidate_ns,), candidate_first=False))
    verdict = speed_verdict(pairs, _result(pairs, Budget(0.05, 35, 60, 1)))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert in_words(verdict).measured.endswith("but up to 10.4 % on average over the pairs")


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize(("difference", "decided"), [(0.0, Outcome.PASS), (0.05, Outcome.FAIL)])
def test_two_to_four_chunks_decide_no_ppl(n: int, difference: float, decided: Outcome) -> None:
    """A whole corpus of fewer than five chunks is INCONCLUSIVE, and the advice has the number."""
    test = PairedPplTest(0.01, n_chunks_total=n)
    for _ in range(n):
        test.update(difference)
    text = ScoredText("corpus.txt", "0" * 64, n, n, 512)
    verdict = ppl_verdict(
        PplComparison(test, None, 1.0, 1, (RAN, CANDIDATE), text, interrupted=False)
    )
    assert verdict.outcome is (decided if n == 5 else Outcome.INCONCLUSIVE)
    if n < 5:
        assert in_words(verdict).why == f"{n} of {n} chunks scored"
        assert advice_text(verdict.advice).startswith("score 5 chunks at least")


def test_chunks_that_are_left_need_time() -> None:
    """A corpus with more chunks than the time allowed is not too short."""
    test = PairedPplTest(0.01, n_chunks_total=40)
    for _ in range(5):
        test.update(0.0)
    text = ScoredText("corpus.txt", "0" * 64, 40, 40, 512)
    verdict = ppl_verdict(
        PplComparison(test, None, 1.0, 1, (RAN, CANDIDATE), text, interrupted=False)
    )
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert advice_text(verdict.advice) == "allow more time, for up to 35 chunks more: max_seconds"


def test_one_run_a_pair_says_what_it_cannot_exclude() -> None:
    """With one run pair the total is the median pair, and a slow minority may pass."""
    assert "only their mean shows a minority of slow runs" in lab_note(_speed([1000]))


@pytest.mark.parametrize(
    ("interrupted", "advice"),
    [(True, "run it again to its end"), (False, "allow more time: max_seconds")],
)
def test_no_finished_pair_advises_by_its_reason(*, interrupted: bool, advice: str) -> None:
    """A measurement that Ctrl-C stopped needs no more time, and one that ran out of it does."""
    pairs = WorkloadPairs(Workload("tg", 8), TotalTimeTest(0.05), [])
    result = replace(_result(pairs, Budget(0.05, 30, 60, 1)), interrupted=interrupted)
    claim = PairedClaim(("a", "b"), "tg8", (Limit(">=", 1.5, RATIO),), is_rate=True)
    for verdict in (speed_verdict(pairs, result), paired_verdict(result, claim)):
        assert (verdict.outcome, advice_text(verdict.advice)) == (Outcome.INCONCLUSIVE, advice)


def test_ctrl_c_after_some_pairs_advises_to_run_it_again() -> None:
    """More pairs or time is no advice if neither was used up."""
    pairs = WorkloadPairs(Workload("tg", 8), TotalTimeTest(0.05), [])
    for _ in range(2):
        pairs.add(Pair((1000,), (1040,), candidate_first=False))
    result = replace(_result(pairs, Budget(0.05, 30, 60, 1)), interrupted=True)
    claim = PairedClaim(("a", "b"), "tg8", (Limit(">=", 0.96, RATIO),), is_rate=True)
    for verdict in (speed_verdict(pairs, result), paired_verdict(result, claim)):
        assert advice_text(verdict.advice) == "run it again to its end"
