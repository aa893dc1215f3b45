import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.combined_verdict import judge_monotonic, judge_pareto
from pytest_asperf.analysis.limit_verdict import (
    judge_above,
    judge_below,
    judge_within,
    parse_percent,
)
from pytest_asperf.analysis.metrics import PPL, SIZE, TG
from pytest_asperf.analysis.results import Limit, WithinLimits
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.percentiles import percentile_interval
from pytest_asperf.analysis.verdict import Outcome, Subject, judge_invalid
from pytest_asperf.errors import Advice, ConfigError, printable
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text, lab_note, line

SUBJECT = Subject(
    "ΔPPL asperf-target Q6_K vs F16",
    "live",
    ran=(("engine", "llama-cpp-python 0.3.36"), ("file", "asperf-target-Q6_K.gguf")),
    if_failed="quantize again from the F16 file",
)


def change(point: float, half: float, n: int = 63) -> Estimate:
    """Return a relative change over chunks, in percent here for brevity."""
    return Estimate(
        point / 100,
        (point - half) / 100,
        (point + half) / 100,
        n,
        method="by hand",
        unit=CHANGE,
        counted="chunks",
    )


@pytest.mark.parametrize(
    ("point", "half", "below", "above"),
    [
        (0.39, 0.17, "PASS", "FAIL"),
        (1.5, 0.4, "FAIL", "PASS"),
        (0.9, 0.2, "INCONCLUSIVE", "INCONCLUSIVE"),
        (1.0, 0.0, "FAIL", "FAIL"),
    ],
)
def test_threshold_is_compared_with_the_interval(
    point: float, half: float, below: str, above: str
) -> None:
    """The whole interval decides; on the limit itself neither strict assertion is true."""
    assert judge_below(change(point, half), 0.01, SUBJECT).outcome == below
    assert judge_above(change(point, half), 0.01, SUBJECT).outcome == above


finite = st.floats(-1, 1)


@given(finite, st.floats(0, 1), finite)
def test_only_an_interval_clear_of_the_limit_decides(
    point: float, half: float, limit: float
) -> None:
    """With a limit strictly inside the interval no assertion about it passes or fails."""
    estimate = change(100 * point, 100 * half)
    for verdict in (
        judge_below(estimate, limit, SUBJECT),
        judge_above(estimate, limit, SUBJECT),
        judge_within(estimate, SUBJECT, at_most=limit),
        judge_within(estimate, SUBJECT, at_least=limit),
    ):
        if limit not in {estimate.low, estimate.high}:
            inside = estimate.low < limit < estimate.high
            assert inside == (verdict.outcome is Outcome.INCONCLUSIVE)
        assert bool(verdict.advice) == (verdict.outcome is not Outcome.PASS)


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({"at_most": 0.01}, "PASS"),
        ({"at_least": 0.004, "at_most": 0.006}, "PASS"),
        ({"at_least": 0.005}, "INCONCLUSIVE"),
        ({"at_least": 0.007, "at_most": 0.01}, "FAIL"),
        ({"at_most": 0.003}, "FAIL"),
    ],
)
def test_within_checks_both_ends(limits: dict[str, float], outcome: str) -> None:
    """A range passes if the interval is inside, and fails if it is wholly outside."""
    verdict = judge_within(change(0.5, 0.1), SUBJECT, **limits)
    assert verdict.outcome == outcome


@pytest.mark.parametrize("limits", [{}, {"at_least": 2.0, "at_most": 1.0}, {"at_least": math.nan}])
def test_ranges_that_hold_nothing_are_refused(limits: dict[str, float]) -> None:
    """No limit, a reversed range and NaN are a mistake of the caller."""
    with pytest.raises(ValueError, match="nothing lies"):
        judge_within(change(0.5, 0.1), SUBJECT, **limits)


def test_line_names_claim_figure_and_basis() -> None:
    """The one-line verdict has assertion, figure with interval, and its basis."""
    assert line(judge_below(change(0.39, 0.17), 0.01, SUBJECT)) == (
        "PASS  ΔPPL asperf-target Q6_K vs F16 below 1 %: +0.39 % [0.22, 0.56] (63 chunks)"
    )


def test_recorded_figures_never_look_live() -> None:
    """A verdict on published figures is marked in the line and in the note."""
    verdict = judge_below(change(0.39, 0.17), 0.01, Subject("x", "recorded", ran=(("doc", "a"),)))
    assert line(verdict).endswith("(63 chunks, recorded)")
    assert "ran (recorded):" in lab_note(verdict)


def test_note_holds_all_parts() -> None:
    """The lab note has assertion, figure, interval, threshold, run record and remedy."""
    estimate = replace(change(1.6, 0.4), method="t")
    assert lab_note(judge_below(estimate, 0.01, SUBJECT)).splitlines() == [
        "FAIL: the assertion is shown false",
        "  assertion:  ΔPPL asperf-target Q6_K vs F16 below 1 %",
        "  measured:   +1.60 % [1.20, 2.00]",
        "  interval:   90 % two-sided, so each bound errs in at most 5 % of runs; t, 63 chunks",
        "  threshold:  below 1 %",
        "  ran (live): engine: llama-cpp-python 0.3.36",
        "              file: asperf-target-Q6_K.gguf",
        "  what to do: quantize again from the F16 file",
    ]


def test_inconclusive_says_what_would_decide() -> None:
    """Halving the half-width needs four times the chunks; the advice names the number."""
    verdict = judge_below(change(0.9, 0.2), 0.01, SUBJECT)
    assert "about 190 more chunks would decide it" in advice_text(verdict.advice)


def test_a_figure_on_the_limit_gets_honest_advice() -> None:
    """If no practicable number of chunks would decide, the advice is another limit."""
    assert "decide: set another limit" in advice_text(
        judge_below(change(1.0, 0.2), 0.01, SUBJECT).advice
    )
    assert "decide: set another limit" in advice_text(
        judge_below(change(0.999, 0.2), 0.01, SUBJECT).advice
    )


def test_too_few_samples_are_inconclusive() -> None:
    """An infinite interval decides nothing, and the advice names the missing part."""
    few = Estimate(
        1,
        -math.inf,
        math.inf,
        3,
        method="Student's t",
        unit="tok/s",
        counted="repetitions",
        needed=5,
    )
    verdict = judge_below(few, 100, SUBJECT)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "measure 5 repetitions" in advice_text(verdict.advice)


def test_a_percentile_of_tokens_is_decided_by_more_runs() -> None:
    """Tokens come with their runs, so the advice is a number of runs, and that many do."""
    runs = [[2.0] * 40 + [1.0] * 88, *[[1.0] * 128] * 9]
    few = percentile_interval(runs, 95, unit="ms", counted="tokens")
    advice = advice_text(judge_below(few, 100, SUBJECT).advice)
    found = re.search(r"measure [0-9]+ tokens: repetitions = ([0-9]+)$", advice)
    assert found, advice
    assert len(runs) < int(found[1]) < 100
    more = percentile_interval(runs * math.ceil(int(found[1]) / len(runs)), 95, unit="ms")
    assert judge_below(more, 100, SUBJECT).outcome is Outcome.PASS


LADDER = ("F16", "Q8_0", "Q6_K", "Q5_K_M")


@pytest.mark.parametrize(
    ("steps", "outcome", "phrase"),
    [
        (((1, 0.5), (2, 0.5), (3, 0.5)), "PASS", "3 of 3 steps shown"),
        (((1, 0.5), (-2, 0.5), (3, 4)), "FAIL", "Q8_0 → Q6_K -2.00 % [-2.50, -1.50]"),
        (((1, 0.5), (2, 0.5), (3, 4)), "INCONCLUSIVE", "Q6_K → Q5_K_M +3.0 % [-1.0, 7.0]"),
        (((1, 0.5), (0, 0), (3, 0.5)), "FAIL", "Q8_0 → Q6_K +0 %"),
    ],
)
def test_monotonic_needs_every_step(
    steps: tuple[tuple[float, float], ...], outcome: str, phrase: str
) -> None:
    """All steps shown pass, one reversed or flat step fails, an open one leaves it open."""
    rising = judge_monotonic(LADDER, [change(*s) for s in steps], SUBJECT, direction="rising")
    falling = judge_monotonic(
        LADDER, [change(-p, h) for p, h in steps], SUBJECT, direction="falling"
    )
    assert rising.outcome == falling.outcome == outcome
    assert phrase in in_words(rising).measured
    assert in_words(rising).threshold == "rising along F16, Q8_0, Q6_K, Q5_K_M"


def test_monotonic_advice_names_the_open_step() -> None:
    """The advice is about the step that is open, not about those already shown."""
    steps = [change(1, 0.5), change(2, 0.5), change(3, 6)]
    (advice,) = judge_monotonic(LADDER, steps, SUBJECT, direction="rising").advice
    assert advice.text.startswith("Q6_K → Q5_K_M: about 190 more chunks")


def test_monotonic_refuses_a_wrong_number_of_steps() -> None:
    """A sweep of k labels has k - 1 steps, and at least one."""
    with pytest.raises(ValueError, match="differences"):
        judge_monotonic(LADDER, [change(1, 0.5)], SUBJECT, direction="rising")
    with pytest.raises(ValueError, match="differences"):
        judge_monotonic(("F16",), [], SUBJECT, direction="rising")


def size(difference_mb: float) -> Estimate:
    """Return an exact difference in size."""
    return Estimate.exact(difference_mb, "MB")


def test_pareto_passes_where_every_other_is_worse_somewhere() -> None:
    """A bigger but better and a smaller but worse candidate leave the subject on the front."""
    others = {"Q8_0": [size(900), change(-0.4, 0.1)], "Q4_K_M": [size(-700), change(3, 1)]}
    verdict = judge_pareto(others, (SIZE, PPL), SUBJECT)
    assert verdict.outcome is Outcome.PASS
    assert line(verdict).endswith(
        "on the Pareto front of size, PPL: dominated by none of 2 (63 chunks)"
    )


def test_pareto_fails_and_names_the_dominating_candidate() -> None:
    """A smaller candidate shown at least as good dominates, and the figures are given."""
    others = {"Q4": [size(-700), change(-1, 0.5)], "Q4 b": [size(900), change(-0.4, 0.1)]}
    verdict = judge_pareto(others, (SIZE, PPL), SUBJECT)
    assert verdict.outcome is Outcome.FAIL
    found = "dominated by Q4 size -700.0 MB, Q4 PPL -1.00 % [-1.50, -0.50]"
    assert in_words(verdict).measured == found
    assert verdict.advice == (Advice(SUBJECT.if_failed),)


def test_pareto_is_open_where_a_smaller_candidate_may_be_as_good() -> None:
    """A smaller candidate of unclear quality leaves it open, and the advice is about quality."""
    others = {"Q5_K_M": [size(-300), change(0.2, 0.4)], "Q8_0": [size(900), change(-0.4, 0.1)]}
    verdict = judge_pareto(others, (SIZE, PPL), SUBJECT)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.advice[0].text.startswith("Q5_K_M PPL: about 190 more chunks")


def test_pareto_twins_do_not_dominate_each_other() -> None:
    """A candidate that is equal in everything is better in nothing."""
    verdict = judge_pareto({"twin": [size(0), change(0, 0)]}, (SIZE, PPL), SUBJECT)
    assert verdict.outcome is Outcome.PASS


def test_pareto_knows_that_higher_rates_are_better() -> None:
    """A faster candidate of equal size dominates, a slower one does not."""
    for step, outcome in ((change(5, 1), "FAIL"), (change(-5, 1), "PASS")):
        assert judge_pareto({"x": [size(0), step]}, (SIZE, TG), SUBJECT).outcome == outcome


def test_pareto_refuses_an_empty_comparison() -> None:
    """Without a competitor there is no front, and a missing figure is an error."""
    with pytest.raises(ValueError, match="nothing"):
        judge_pareto({}, (SIZE,), SUBJECT)
    with pytest.raises(ValueError, match="zip"):
        judge_pareto({"x": [size(1)]}, (SIZE, TG), SUBJECT)


def test_invalid_says_what_broke() -> None:
    """A broken measurement carries every problem and its remedy, and no figure."""
    below = WithinLimits(limits=(Limit("<", 0.01, CHANGE),))
    problems = ["3 failed decodes", "wrong device"]
    verdict = judge_invalid(SUBJECT, problems, advice="fix", result=below)
    assert line(verdict) == "INVALID  ΔPPL asperf-target Q6_K vs F16 below 1 %: 3 failed decodes"
    assert "wrong device" in lab_note(verdict)
    assert "what to do: fix" in lab_note(verdict)


@pytest.mark.parametrize(
    ("given_", "fraction"),
    [
        ("1%", 0.01),
        ("0.5 %", 0.005),
        (" 100%", 1.0),
        (0.01, 0.01),
        ("0.01", 0.01),
        ("+3%", 0.03),
        ("0%", 0),
        ("150%", 1.5),
        (0.999, 0.999),
    ],
)
def test_percents_are_read(given_: object, fraction: float) -> None:
    """A share is text with a percent sign, or a fraction below 1."""
    assert parse_percent(given_, where="below") == pytest.approx(fraction)


@pytest.mark.parametrize(
    "given_",
    ["", "%", "one %", "-1%", "nan%", "1e9%", "9" * 400 + "%", "1,5 %", "1%%", "\x1b[2J",
     math.nan, math.inf, -0.01, True, None, [1], 10**400],
)  # fmt: skip
def test_nonsense_limits_are_refused(given_: object) -> None:
    """An ambiguous or meaningless input is rejected by name."""
    with pytest.raises(ConfigError, match="below: ") as caught:
        parse_percent(given_, where="below")
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("given_", "offered"),
    [
        (5, 'write "5%" or 0.05; if 500 % is meant, "500%"'),
        (1, 'write "1%" or 0.01; if 100 % is meant, "100%"'),
        (2.5, 'write "2.5%" or 0.025; if 250 % is meant, "250%"'),
        (-2, 'write "-2%" or -0.02; if -200 % is meant, "-200%"'),
        ("5", 'write "5%" or 0.05; if 500 % is meant, "500%"'),
        ("1", 'write "1%" or 0.01; if 100 % is meant, "100%"'),
        (np.float64(5), 'write "5%" or 0.05; if 500 % is meant, "500%"'),
    ],
)
def test_a_number_without_a_unit_is_no_share(given_: object, offered: str) -> None:
    """A number from 1 on may be percent or a multiple, so both ways of writing it are offered."""
    with pytest.raises(ConfigError, match=r"tolerance: .* it has no unit") as caught:
        parse_percent(given_, where="tolerance", negative=True)
    assert caught.value.remedy == offered


def test_negative_limits_are_read_where_they_make_sense() -> None:
    """An assertion about a gain may have a limit below zero."""
    assert parse_percent("-2%", where="above", negative=True) == pytest.approx(-0.02)


@given(st.text())
def test_outside_text_is_safe_to_print(text: str) -> None:
    """For any label, a verdict prints one line of printable characters."""
    verdict = judge_below(
        change(0.9, 0.2), 0.01, Subject(text, "live", ran=((text, text),), if_failed=text)
    )
    assert line(verdict).isprintable()
    assert all(line.isprintable() for line in lab_note(verdict).split("\n"))
    assert lab_note(verdict).count("\n") == 6


def test_outside_text_is_bounded() -> None:
    """A label of a megabyte does not flood the terminal, escaped or not."""
    assert len(printable("a" * 10**6)) == len(printable("\x00" * 10**6)) == 1000
    assert printable("\x1b[31m\u202e") == "\\x1b[31m\\u202e"
