"""Each guard against the published figures that it is there for, and against one close by."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence, Guard, GuardFinding, Voids
from pytest_asperf.analysis.limit_verdict import judge_above
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject, guarded
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import lab_note

GB = 1e9
POSITIVE = st.floats(1e-3, 1e6)
FACTOR = st.floats(1, 1e3)

INVALID, INCONCLUSIVE, WARNING = Consequence.INVALID, Consequence.INCONCLUSIVE, Consequence.WARNING

# 177 rounds of 4 drafted tokens in 3.276 s: weights of 9B less its embedding, four times 0.8B's.
ROUNDS_PER_S, ROUND_BYTES = 177 / 3.276, (10.93 + 4 * 1.1755) * GB
SD = {"k": 4, "drafted": 708, "accepted": 23}


def _logits(
    *, n_nan: int = 0, n_inf: int = 0, peak: float | None = 17.2, is_flat: bool = False
) -> GuardFinding | None:
    return guards.broken_logits(
        n_vocab=2048, n_nan=n_nan, n_inf=n_inf, peak=peak, largest=65_504, is_flat=is_flat
    )


def _gpu(*, has_matrix: bool | None, is_over: bool = False) -> GuardFinding | None:
    return guards.gpu_limits(
        "GPU", has_matrix=has_matrix, working_set_bytes=40_200_900_000, is_over=is_over
    )


CASES: Mapping[
    str, tuple[Consequence, Callable[[], GuardFinding | None], Callable[[], GuardFinding | None]]
] = {
    # 844 GB/s on an M2 Ultra; the 9B alone at 42.4 tok/s, 58 %.
    "roofline-high": (
        INVALID,
        lambda: guards.roofline_high(ROUNDS_PER_S, ROUND_BYTES, 819.2),
        lambda: guards.roofline_high(42.4, 10.93 * GB, 819.2),
    ),
    # 0.8B FP16 at 70 tok/s, "bandwidth-bound"; the same family at Q8, 140 tok/s.
    "roofline-low": (
        WARNING,
        lambda: guards.roofline_low(70, 1.6 * GB, 800),
        lambda: guards.roofline_low(140.2, 1.1755 * GB, 800),
    ),
    # A virtual machine's device, and Apple silicon's; the working set of an M4 Pro with 48 GB.
    "gpu-limits": (
        WARNING,
        lambda: _gpu(has_matrix=False),
        lambda: _gpu(has_matrix=True),
    ),
    # A final norm times 1e30, in float32; a sound row in which half of the tokens are masked.
    "broken-logits": (
        INVALID,
        lambda: _logits(peak=3e31),
        lambda: _logits(peak=17.2),
    ),
    # 53.6 tok/s at 3.2 % acceptance; at 75 %, speculation can give as much.
    "sd-bound": (
        INVALID,
        lambda: guards.sd_bound(53.6, 42.4, **SD),
        lambda: guards.sd_bound(53.6, 42.4, k=4, drafted=708, accepted=531, c=0.3, verify=1.8),
    ),
    # The paper's formula with c = T_target next to the paper's own result.
    "predicted-against-measured": (
        WARNING,
        lambda: guards.predicted_against_measured(15, 53.3),
        lambda: guards.predicted_against_measured(48, 53.3),
    ),
    # 221 tokens, 20 of them the prompt's, in 4.1235 s; the 201 generated ones.
    "token-accounting": (
        INVALID,
        lambda: guards.token_accounting(53.6, n_prompt=20, n_generated=201, elapsed_s=4.1235),
        lambda: guards.token_accounting(48.7, n_prompt=20, n_generated=201, elapsed_s=4.1235),
    ),
    "decode-errors": (
        INVALID,
        lambda: guards.decode_errors(["ready", "llama_decode: failed to decode, ret = -1"] * 819),
        lambda: guards.decode_errors(["decoded  201 tokens in    3.276 seconds", "0 failed"]),
    ),
    # The long prompt at 99.6 ms and 4.18 GB; the rerun of the hybrid after its repair.
    "identical-to-baseline": (
        INVALID,
        lambda: guards.identical_to_baseline({"ms": 99.6, "GB": 4.18}, {"ms": 96.0, "GB": 4.18}),
        lambda: guards.identical_to_baseline({"ms": 892, "GB": 3.43}, {"ms": 101.1, "GB": 4.18}),
    ),
    # Zeroed weights guess evenly among 2,048 tokens; the shipped draft's own PPL.
    "baseline-knows-nothing": (
        INVALID,
        lambda: guards.knows_nothing(2047.9, 2048),
        lambda: guards.knows_nothing(7.66, 2048),
    ),
    # 28 layers of random weights in two equal builds; a candidate with a fault of its own.
    "baseline-drifts": (
        INVALID,
        lambda: guards.baseline_drifts({"the mean KLD": (1.2, 1.2, 0.2)}),
        lambda: guards.baseline_drifts({"the mean KLD": (2.41, 1.2, 0.2)}),
    ),
    # A 7.3 M model's Q8_0 declared as a quantization of a 1.3 M one's F16.
    "impossible-gain": (
        INVALID,
        lambda: guards.impossible_gain(-0.1),
        lambda: guards.impossible_gain(-0.0999),
    ),
    "path-mismatch": (
        INVALID,
        lambda: guards.path_mismatch({"branch": "hybrid"}, {"branch": "mlx"}),
        lambda: guards.path_mismatch({"branch": "hybrid"}, {"branch": "hybrid", "gpu": "M2"}),
    ),
    # 268 tok/s of batch prefill at 74 tokens next to a sequential rate at 422.
    "unequal-work": (
        INVALID,
        lambda: guards.unequal_work({"prompt tokens": 74}, {"prompt tokens": 422, "runs": 10}),
        lambda: guards.unequal_work({"prompt tokens": 422}, {"prompt tokens": 422, "runs": 10}),
    ),
    "estimate": (
        INCONCLUSIVE,
        lambda: guards.estimate("M1 Max 37 tok/s", 0),
        lambda: guards.estimate("M2 Ultra 42.4 tok/s", 3),
    ),
    # Q6_K's and the 9B's rows of the published tables, as llama-bench wrote them.
    "spread": (
        INCONCLUSIVE,
        lambda: guards.spread(61.98, 13.69, 4),
        lambda: guards.spread(42.42, 0.044, 4),
    ),
    "throttled": (
        INVALID,
        lambda: guards.throttled([0, 0, 1, 2]),
        lambda: guards.throttled([1, 1, 0, 0], [1398, 1380, 1398]),
    ),
    "host-busy": (
        INVALID,
        lambda: guards.host_busy(0.6, 2),
        lambda: guards.host_busy(3.0, 64),
    ),
    "short-window": (
        INVALID,
        lambda: guards.short_window("CPU", 1, 5),
        lambda: guards.short_window("CPU", 5, 5),
    ),
    # Over 5 s of an idle card, 327 J by the counter and 187 J by power; an H100's averaged power.
    "counter-against-power": (
        INVALID,
        lambda: guards.counter_disagrees("GPU 0", 65.4, 37.4),
        lambda: guards.counter_disagrees("GPU 0", 700.0, 693.0),
    ),
    # "282 times less power" is of the GPU's rail alone.
    "rail-coverage": (
        INVALID,
        lambda: guards.rail_coverage(("gpu",), on_gpu=True),
        lambda: guards.rail_coverage(("cpu", "gpu"), on_gpu=True),
    ),
    # A window 3.3 times its phase; the prefill's 126 samples of 108 ms over 15.04 s.
    "impure-window": (
        INVALID,
        lambda: guards.impure_window(459, 0.108, 15.04),
        lambda: guards.impure_window(126, 0.108, 15.04),
    ),
    # 5.57 W against 64.4 W, and 61.8 J against 2.9 J for a prefill of 410 tokens.
    "joules-per-token": (
        WARNING,
        lambda: guards.joules_per_token(5.57, 61.8 / 410, 64.4, 2.9 / 410),
        lambda: guards.joules_per_token(5.57, 2.8 / 410, 64.4, 2.9 / 410),
    ),
    "degenerate-output": (
        WARNING,
        lambda: guards.degenerate_output(["holds holds holds holds the the the the"] * 9),
        lambda: guards.degenerate_output(["the bound holds, the bound of the target"] * 2),
    ),
    "divergent-output": (
        INVALID,
        lambda: guards.divergent_output(12, 0.7),
        lambda: guards.divergent_output(12, 0.4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_published_case_trips_and_its_neighbour_does_not(name: str) -> None:
    """A trip has its guard's name and consequence, the finding and the rule."""
    consequence, bad, good = CASES[name]
    guard_finding = bad()
    assert guard_finding is not None
    assert (guard_finding.guard, guard_finding.consequence) == (name, consequence)
    assert str(guard_finding) == f"{name}: {guard_finding.found} ({guard_finding.rule})"
    assert good() is None


def test_the_figures_are_those_of_the_raw_data() -> None:
    """The findings are those that were recomputed by hand."""
    high = guards.roofline_high(ROUNDS_PER_S, ROUND_BYTES, 800)
    assert high is not None
    assert "844.6 GB/s, 106% of 800 GB/s" in high.found
    free, known = guards.sd_bound(53.6, 42.4, **SD), guards.sd_bound(53.6, 42.4, **SD, c=0.3024)
    assert free is not None
    assert known is not None
    assert "at most 47.91 tok/s, compared with 42.4" in free.found
    assert "at most 21.68 tok/s" in known.found
    errors = CASES["decode-errors"][1]()
    assert errors is not None
    assert errors.found.startswith("819 of")


@given(POSITIVE, POSITIVE, POSITIVE, st.floats(0, 1e6), FACTOR)
def test_a_roofline_stays_broken_when_faster(
    rate: float, gb: float, gbs: float, cache: float, more: float
) -> None:
    """A rate that trips also trips when higher, and with any smaller cache."""
    if guards.roofline_high(rate, gb * GB, gbs, cache_bytes=cache):
        assert guards.roofline_high(rate * more, gb * GB, gbs, cache_bytes=cache / more)
        assert guards.roofline_low(rate, gb * GB, gbs, cache_bytes=cache) is None


@given(POSITIVE, POSITIVE, st.integers(1, 16), st.data(), FACTOR)
def test_an_sd_bound_stays_broken_when_worse(
    measured: float, alone: float, k: int, data: st.DataObject, more: float
) -> None:
    """A higher rate, fewer accepted, costlier drafts or batches: none of them mends a trip."""
    drafted = data.draw(st.integers(1, 1000))
    accepted = data.draw(st.integers(0, drafted))
    counts = {"k": k, "drafted": drafted, "accepted": accepted}
    if guards.sd_bound(measured, alone, **counts):
        assert guards.sd_bound(measured * more, alone, **counts)
        assert guards.sd_bound(measured, alone, **counts | {"accepted": accepted // 2})
        assert guards.sd_bound(measured, alone, **counts, c=more)
        assert guards.sd_bound(measured, alone, **counts, verify=more)


@given(st.floats(0.1, 100), st.floats(0, 2), st.floats(1, 3), st.integers(1, 8), st.data())
def test_what_a_round_can_give_breaks_no_bound(
    alone: float, c: float, verify: float, k: int, data: st.DataObject
) -> None:
    """Simulated rounds with their costs are within the bound, with known and unknown costs."""
    accepted = data.draw(st.lists(st.integers(0, k), min_size=1, max_size=30))
    rounds = len(accepted)
    rate = alone * (rounds + sum(accepted)) / (rounds * (k * c + verify))
    counts = {"k": k, "drafted": k * rounds, "accepted": sum(accepted)}
    assert guards.sd_bound(rate, alone, **counts) is None
    assert guards.sd_bound(rate, alone, **counts, c=c, verify=verify) is None


@given(st.floats(0.1, 1e3), st.floats(0, 1e3), st.integers(2, 50), FACTOR)
def test_a_spread_stays_too_wide(mean: float, sd: float, n: int, more: float) -> None:
    """More deviation never makes a mean represent its runs."""
    if guards.spread(mean, sd, n):
        assert guards.spread(mean, sd * more, n)


def test_one_run_has_no_spread() -> None:
    """One run per prompt shows nothing about differences of runs."""
    assert guards.spread(53.3, 0.0, 1)


@pytest.mark.parametrize(
    ("n", "is_found"),
    [(126, False), (13 * 5, True), (int(15.04 / 0.108 * 1.3), True), (92, True)],
)
def test_windows_that_are_too_short_or_too_long(n: int, is_found: bool) -> None:  # noqa: FBT001
    """Both ways: too little of the phase is as wrong as too much."""
    assert bool(guards.impure_window(n, 0.108, 15.04)) is is_found


@pytest.mark.parametrize(
    ("levels", "clocks", "is_found"),
    [
        ([2, 2, 2], [], True),
        ([1, 1, 1], [], False),
        ([], [1398, 1200], True),
        ([], [1398, 1300], False),
        ([], [], False),
    ],
)
def test_throttling_is_a_rise_or_a_drop(
    levels: list[int],
    clocks: list[float],
    is_found: bool,  # noqa: FBT001
) -> None:
    """Pressure that stays moderate slows nothing; heavy pressure and a fallen clock do."""
    assert bool(guards.throttled(levels, clocks)) is is_found


def test_energy_is_of_the_work_alone() -> None:
    """Gaps between runs, and a rail that did nothing, are not the work's energy."""
    assert guards.idle_gaps(0.9, 1.0) is None
    found = guards.idle_gaps(0.7, 1.0)
    assert found is not None
    assert found.guard == "impure-window"
    assert guards.idle_rails(("gpu",), on_gpu=True) is None
    assert guards.idle_rails(("package", "gpu"), on_gpu=False) is None
    assert guards.idle_rails(("gpu", "dram"), on_gpu=False) is not None
    assert guards.idle_rails(("package",), on_gpu=True) is not None


def test_what_is_not_known_contradicts_nothing() -> None:
    """A fact that is missing or None is no mismatch; each that differs is named."""
    assert guards.path_mismatch({"device": "ANE", "k": 4}, {"device": None}) is None
    guard_finding = guards.path_mismatch({"device": "ANE", "k": 4}, {"device": "GPU", "k": 8})
    assert guard_finding is not None
    assert (
        guard_finding.found == "device ANE was requested and GPU ran; k 4 was requested and 8 ran"
    )


@pytest.mark.parametrize(
    ("arm", "baseline"),
    [
        ({"GB": 4.18}, {"GB": 4.18}),
        ({"ms": 1248, "GB": 10.14}, {"ms": 625, "GB": 10.43}),
        ({"ms": 100, "GB": 4.18}, {"s": 0.1, "MB": 4180}),
    ],
    ids=["one-quantity", "equal-memory-only", "nothing-shared"],
)
def test_arms_that_are_not_shown_to_be_one(
    arm: dict[str, float], baseline: dict[str, float]
) -> None:
    """One equal quantity is chance, and one that differs is a difference."""
    assert guards.identical_to_baseline(arm, baseline) is None


def test_more_memory_than_the_working_set_is_named() -> None:
    """A GPU that can multiply matrices is warned of, too, if it was given too much."""
    over = _gpu(has_matrix=True, is_over=True)
    assert over is not None
    assert over.found.startswith("GPU: more than its working set of 37.4 GiB was allocated")
    assert _gpu(has_matrix=None) is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_figures_that_no_measurement_has_are_refused(value: float) -> None:
    """A guard reports nothing for nonsense, and does not pass it either."""
    calls: tuple[Callable[[], GuardFinding | None], ...] = (
        lambda: guards.roofline_high(value, GB, 800),
        lambda: guards.roofline_low(1, GB, value),
        lambda: guards.sd_bound(value, 42.4, **SD),
        lambda: guards.predicted_against_measured(1, value),
        lambda: guards.token_accounting(1, n_prompt=1, n_generated=1, elapsed_s=value),
        lambda: guards.spread(value, 1, 3),
        lambda: guards.impure_window(3, value, 1),
        lambda: guards.joules_per_token(1, 1, value, 1),
    )
    for call in calls:
        with pytest.raises(ValueError, match="positive"):
            call()
    with pytest.raises(ValueError, match="accepted of"):
        guards.sd_bound(1, 1, k=1, drafted=1, accepted=2)


def _trip(consequence: Consequence, guard: Guard = Guard.THROTTLED) -> GuardFinding:
    return guard.finding(f"found {consequence}", "the rule", consequence)


@pytest.mark.parametrize("limit", [0.5, 1.0, 1.5], ids=["PASS", "INCONCLUSIVE", "FAIL"])
@pytest.mark.parametrize("consequence", Consequence)
def test_guards_come_before_verdicts(limit: float, consequence: Consequence) -> None:
    """INVALID overrules all, INCONCLUSIVE decided ones, and a warning is only reported."""
    estimate = Estimate(1.0, 0.9, 1.1, 9, method="m", unit="tok/s")
    plain = judge_above(estimate, limit, Subject("tg8", "live"))
    guard_finding = _trip(consequence)
    after = guarded(plain, [_trip(WARNING, Guard.SD_BOUND), guard_finding])
    expected = plain.outcome if consequence is WARNING else Outcome(consequence)
    assert after.outcome is expected
    assert after.guards == (_trip(WARNING, Guard.SD_BOUND), guard_finding)
    assert str(guard_finding) in lab_note(after)
    assert (after.advice == (guard_finding.advice,)) is (after.outcome is not plain.outcome)
    measured = in_words(after).measured
    assert measured.endswith(guard_finding.found) is (after.outcome is not plain.outcome)
    assert guarded(plain, []) == plain


@pytest.mark.parametrize("guard", [Guard.HOST_BUSY, Guard.SPREAD, Guard.DIVERGENT_OUTPUT])
def test_a_guard_voids_its_kind_of_assertion_alone(guard: Guard) -> None:
    """A finding that cannot have changed an assertion is a warning on its verdict."""
    estimate = Estimate(1.0, 0.9, 1.1, 9, method="m", unit="tok/s")
    plain = judge_above(estimate, 0.5, Subject("tg8", "live"))
    finding = guard.finding("found", "the rule")
    spared = guarded(plain, [finding], spared={guard.voids})
    assert (spared.outcome, spared.advice, spared.guards) == (Outcome.PASS, (), (finding,))
    others = set(Voids) - {guard.voids}
    assert guarded(plain, [finding], spared=others).outcome is Outcome(guard.consequence)


def test_two_arms_of_the_same_weights_are_one() -> None:
    """By the file, or if every token has an equal probability; one bit distinguishes them."""
    scores = [[1.0, 2.0], [3.0]]
    other = [[1.0, 2.0], [3.0000000000000004]]
    for guard_finding in (
        guards.same_weights(scores, other, shown="both are one file"),
        guards.same_weights(scores, [[1.0, 2.0], [3.0]]),
    ):
        assert guard_finding is not None
        assert (guard_finding.guard, guard_finding.consequence) == (
            "identical-to-baseline",
            INVALID,
        )
    assert guards.same_weights(scores, other) is None
    assert guards.same_weights(scores, [[1.0, 2.0]]) is None
    assert guards.same_weights([], []) is None


def test_a_fine_tuned_model_may_gain_more_than_a_level() -> None:
    """Weights that were trained further may know more; half of the PPL is beyond them too."""
    assert guards.impossible_gain(-0.2) is not None
    assert guards.impossible_gain(-0.2, is_other_model=True) is None
    assert guards.impossible_gain(-0.99731, is_other_model=True) is not None


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"n_nan": 1}, "1 of 2048 logits are NaN, 0 infinite"),
        ({"n_inf": 2}, "0 of 2048 logits are NaN, 2 infinite"),
        ({"peak": None}, "none of 2048 logits is finite"),
        ({"peak": -7e4}, "the largest logit is -7e+04"),
        ({"peak": 0.0, "is_flat": True}, "all 2048 logits are 0"),
    ],
)
def test_broken_logits_says_what_they_are(row: Mapping[str, Any], found: str) -> None:
    """One NaN in a row is enough: the next step was computed from it."""
    guard_finding = _logits(**row)
    assert guard_finding is not None
    assert guard_finding.found.endswith(found)


def test_tokens_that_were_read_at_once_show_no_steps() -> None:
    """A busy client reads a whole reply at once: its gaps contradict no count of drafts."""
    assert guards.false_drafts(23, 20, 32, (0,) * 31) is None
    assert guards.false_drafts(23, 20, 32, (10,) * 31) is not None
