"""The arithmetic of assertions: no pytest plugin, no engine, no process."""

import operator
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf import ConfigError, Estimate, Outcome, Quantity, Subject, Verdict, VerdictError
from pytest_asperf.analysis.guards import Guard
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE
from pytest_asperf.api.measurement_context import NoRecord
from pytest_asperf.api.quantity import Figure, Found
from pytest_asperf.api.scored import Scored
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text
from pytest_asperf.verdicts.readings import GuardedRates

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass
class Book(NoRecord):
    """A record with everything that a test is checked for at its end."""

    rows: list[Any] = field(default_factory=list)
    forgotten: list[Verdict] = field(default_factory=list)
    waiting: list[Verdict] = field(default_factory=list)
    waits: bool = False

    def __call__(self, row: object, *, instead_of: object = None) -> None:
        """Keep a row."""
        self.rows = [*(one for one in self.rows if one is not instead_of), row]

    def compared(self, verdict: Verdict) -> None:
        """Keep a verdict until it is asserted."""
        self.forgotten.append(verdict)

    def asserted(self, verdict: Verdict) -> None:
        """Drop it."""
        self.forgotten = [one for one in self.forgotten if one is not verdict]

    def keeps(self, undecided: Verdict) -> bool:
        """Leave an undecided assertion for later, if the session does."""
        self.waiting.append(undecided)
        return self.waits


def figure(
    low: float, point: float, high: float, unit: str = "tok/s", record: Any = None, **found: Any
) -> Figure:
    """A quantity with an interval over 30 runs."""
    estimate = Estimate(point, low, high, 30, method="made up", unit=unit, counted="runs")
    if low == high:
        estimate = Estimate.exact(point, unit)
    name = f"q{point:g}"
    subject = Subject(name, "live", (("model", name),))
    return Figure(name, unit, record or Book(), lambda: Found(estimate, subject, **found))


def unmeasured(unit: str = "tok/s") -> Figure:
    """A quantity that must not be measured."""

    def measure() -> Found:
        raise AssertionError("it was measured")

    return replace(figure(41, 42, 43, unit), measure=measure)


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize(
    ("interval", "outcome_above"),
    [((41, 42, 43), "PASS"), ((38, 39, 39.5), "FAIL"), ((39, 40.5, 42), "INCONCLUSIVE")],
)
def test_each_operator_judges_the_whole_interval(
    sign: str, interval: tuple[float, float, float], outcome_above: str
) -> None:
    """A limit is shown exceeded by the whole interval, excluded by it, or open."""
    opposite = {"PASS": "FAIL", "FAIL": "PASS"}
    wanted = outcome_above if ">" in sign else opposite.get(outcome_above, outcome_above)
    verdict = OPERATORS[sign](figure(*interval), "40 tok/s")
    assert verdict.outcome == wanted


@pytest.mark.parametrize("sign", OPERATORS)
def test_a_limit_itself_is_within_and_not_beyond(sign: str) -> None:
    """An exact quantity at its limit meets <= and >=, and neither < nor >."""
    exact = figure(4, 4, 4, "GiB")
    assert OPERATORS[sign](exact, 4).outcome is (Outcome.PASS if "=" in sign else Outcome.FAIL)


def test_a_broken_measurement_is_invalid_on_either_side() -> None:
    """A guard overrules the interval, and its remedy is the verdict's."""
    finding = Guard.THROTTLED.finding("the clock fell", "a clock that holds")
    broken = figure(41, 42, 43, guard_findings=(finding,))
    for verdict in (broken >= 40, broken <= 40, broken / figure(1, 1, 1) >= 40):
        assert verdict.outcome is Outcome.INVALID
        assert advice_text(verdict.advice) == Guard.THROTTLED.remedy


def test_a_spread_matters_only_near_the_limit() -> None:
    """Runs that vary decide no limit in their reach, and every other one."""
    finding = Guard.SPREAD.finding("runs vary", "a CV of 5 %")
    runs = GuardedRates((30.0, 40.0, 55.0), (finding,))
    noisy = figure(39, 40, 41, runs=runs)
    assert (noisy >= 38).outcome is Outcome.INCONCLUSIVE
    assert noisy >= 5


def test_a_verdict_is_true_only_if_it_passes() -> None:
    """A PASS is true; each other outcome is raised with its own report."""
    quantity = figure(39, 40.5, 42)
    assert bool(quantity >= 30) is True
    for verdict in (quantity >= 60, quantity >= 40):
        with pytest.raises(VerdictError) as raised:
            bool(verdict)
        assert str(verdict.outcome) in str(raised.value)
        assert isinstance(raised.value, AssertionError)


def test_a_verdict_is_a_value() -> None:
    """Its outcome is read without raising, together with its reasons."""
    verdict = figure(39, 40.5, 42) >= "60 tok/s"
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is Outcome.FAIL
    assert in_words(verdict).threshold == "at least 60 tok/s"
    assert verdict.figures[0].estimate.point == 40.5


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(30, 60, "PASS"), (50, 60, "FAIL"), (20, 30, "FAIL"), (40, 60, "INCONCLUSIVE")],
)
def test_chained_limits_are_one_assertion(low: float, high: float, outcome: str) -> None:
    """Two one-sided tests with one verdict, one row and one text, in every form of a chain."""
    book = Book()
    quantity = figure(39, 40.5, 42, record=book)

    def upwards() -> None:
        assert low <= quantity <= high

    def downwards() -> None:
        assert f"{high} tok/s" >= quantity >= low

    for chain in (upwards, downwards):
        book.rows.clear()
        with pytest.raises(VerdictError) if outcome != "PASS" else nullcontext() as raised:
            chain()
        (row,) = book.rows
        assert (row.outcome, in_words(row).bound) == (outcome, f"{low} to {high}")
        assert in_words(row).threshold == f"at least {low} tok/s and at most {high} tok/s"
        assert [(one.at_least, one.at_most) for one in row.figures] == [(low, high)]
        assert raised is None or in_words(row).threshold in str(raised.value)
    assert not book.forgotten


#: The same chain as Python runs it where pytest rewrites no assertion.
PLAIN = """
def value(quantity, low, high):
    return low <= quantity <= float(
        high)

def finally_(quantity, low, high):
    try:
        pass
    finally:
        assert low < quantity < high

def loop(quantity, low, high):
    for _ in range(2):
        assert low <= quantity <= high
"""


@pytest.mark.parametrize("form", ["value", "finally_", "loop"])
def test_a_chain_is_one_assertion_without_pytest(form: str) -> None:
    """Python reads the first verdict before it compares with the second limit."""
    book, names = Book(waits=True), dict[str, Any]()
    exec(compile(PLAIN, "helper.py", "exec"), names)  # noqa: S102  # as an imported helper is
    names[form](figure(39, 40.5, 42, record=book), 30, 60)
    assert {(row.outcome, in_words(row).bound) for row in book.rows} == {("PASS", "30 to 60")}
    names["value"](figure(39, 40.5, 42, record=book), 40, 60)
    assert [in_words(verdict).bound for verdict in book.waiting] == ["40 to 60"]
    assert [row.outcome for row in book.rows[-2:]] == ["PASS", "INCONCLUSIVE"]


def test_separate_assertions_on_one_quantity_stay_separate() -> None:
    """Each has its row: in one line, in one expression, in a loop, and as values."""
    book = Book()
    quantity = figure(39, 40.5, 42, record=book)
    assert quantity >= 31
    assert quantity <= 61
    assert quantity >= 32 and quantity <= 62  # noqa: PT018
    for compare, limit in ((operator.ge, 33), (operator.le, 63)):
        assert compare(quantity, limit)
    low, high = quantity >= 34, quantity <= 41
    assert (low.outcome, high.outcome) == ("PASS", "INCONCLUSIVE")
    assert [in_words(row).bound for row in book.rows] == [
        *("≥ 31", "≤ 61", "≥ 32", "≤ 62", "≥ 33", "≤ 63", "≥ 34", "≤ 41")
    ]


def test_a_chain_of_limits_in_two_units_has_one() -> None:
    """Both limits are shown in the unit of the first one."""
    book = Book()
    ratio = replace(figure(99, 100, 101) / figure(100.5, 100.5, 100.5), record=book)
    assert "95%" <= ratio <= 1.05
    assert "500 MB" < figure(1, 1, 1, "GiB", book) <= "2 GiB"
    assert [in_words(row).threshold for row in book.rows] == [
        "at least 95 % and at most 105 %",
        "above 500 MB and at most 2147.48 MB",
    ]


def test_limits_without_room_are_refused() -> None:
    """A chain that nothing can meet is a slip of the pen."""
    with pytest.raises(ConfigError, match="at least 60 tok/s and at most 30 tok/s: there is no"):
        assert 60 <= figure(39, 40.5, 42) <= 30
    assert 5 <= figure(5, 5, 5, "GiB") <= 5


def test_a_comparison_that_nothing_asserts_is_remembered() -> None:
    """A record has it until the verdict is used: asserted, or its outcome read."""
    book = Book()
    quantity = figure(41, 42, 43, record=book)
    first, second, third = quantity >= 40, quantity >= 39, quantity <= 1
    assert book.forgotten == [first, second, third]
    assert first
    assert second.outcome is Outcome.PASS
    assert book.forgotten == [third]
    assert len(book.rows) == 3


def test_an_undecided_assertion_waits_if_the_session_lets_it() -> None:
    """A later assertion may be a FAIL, which must be seen."""
    book = Book(waits=True)
    quantity = figure(39, 40.5, 42, record=book)
    assert bool(quantity >= 40) is True
    assert [verdict.outcome for verdict in book.waiting] == [Outcome.INCONCLUSIVE]
    with pytest.raises(VerdictError):
        bool(quantity >= 60)


def test_a_quantity_is_no_truth_value() -> None:
    """A measurement is no assertion; the error shows how to make one."""
    with pytest.raises(ConfigError, match="compare it with a limit"):
        bool(figure(41, 42, 43))


@pytest.mark.parametrize("equal", [operator.eq, operator.ne])
def test_equality_is_refused(equal: Callable[[object, object], object]) -> None:
    """No measurement shows equality; the error names the chain of limits."""
    for other in (42, "42 tok/s", None, figure(1, 1, 1)):
        with pytest.raises(ConfigError, match=r"0\.98 <= a / b <= 1\.02"):
            equal(unmeasured(), other)


@pytest.mark.parametrize(
    ("unit", "limit", "value"),
    [
        ("tok/s", "40 tok/s", 40),
        ("tok/s", 40, 40),
        ("ms", "1.5 s", 1500),
        ("ms", "250ms", 250),
        ("ms", "80 us", 0.08),
        ("J/token", "20 mJ/token", 0.02),
        ("W", "8 W", 8),
        ("GiB", 3, 3),
        (SHARE, "60%", 0.6),
        (SHARE, 0.6, 0.6),
        (CHANGE, "-79 %", -0.79),
        (RATIO, "40%", 0.4),
        (RATIO, "1.5x", 1.5),
        (RATIO, 1.5, 1.5),
        ("nats", 0.01, 0.01),
        ("nats", "0.01 nats", 0.01),
        ("", 7.5, 7.5),
        ("tokens", 410, 410),
    ],
)
def test_a_limit_is_in_the_unit_of_its_quantity(unit: str, limit: Any, value: float) -> None:
    """A number has the quantity's unit, a text one of the same kind."""
    below = value - abs(value) / 2
    verdict = figure(below, below, below, unit) <= limit
    (judged,) = verdict.figures
    assert judged.at_most == pytest.approx(value)
    assert verdict.outcome is Outcome.PASS


def test_sizes_are_shown_in_the_unit_of_the_limit() -> None:
    """A limit in MB judges, and shows, megabytes of ten to the six."""
    size = figure(1, 1, 1, "GiB")
    assert size <= "1074 MB"
    verdict = size <= "1073 MB"
    assert verdict.outcome is Outcome.FAIL
    assert in_words(verdict).measured == "1074 MB"
    assert (size <= "1 GiB").outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("unit", "limit", "found"),
    [
        ("tok/s", "250 ms", "tok/s cannot be compared with ms"),
        ("ms", "40 tok/s", "ms cannot be compared with tok/s"),
        ("ms", "60%", "ms cannot be compared with %"),
        ("J/token", "3 W", "J/token cannot be compared with W"),
        ("GiB", "3 s", "GiB cannot be compared with s"),
        ("tok/s", "forty", "'forty' is no limit in tok/s"),
        ("tok/s", -1, "-1 is no limit in tok/s"),
        ("tok/s", 0, "0 is no limit in tok/s"),
        ("tok/s", float("nan"), "nan is no limit in tok/s"),
        ("tok/s", True, "True is no limit in tok/s"),
        ("tok/s", None, "None is no limit in tok/s"),
        (RATIO, "40 ms", "x cannot be compared with ms"),
        (SHARE, 5, "5 is not a usable limit: it has no unit"),
        (SHARE, "5 GiB", "'5 GiB' is not a usable limit"),
    ],
)
def test_a_limit_of_another_kind_is_an_error(unit: str, limit: Any, found: str) -> None:
    """The error names the comparison and both units."""
    with pytest.raises(ConfigError) as raised:
        unmeasured(unit) <= limit  # noqa: B015  # it raises
    assert found in raised.value.what
    assert raised.value.what.startswith("q42 <= ")


def test_quantities_of_two_kinds_have_no_ratio() -> None:
    """Neither a ratio, a difference nor an order, and a number is no quantity."""
    rate, time = unmeasured(), unmeasured("ms")
    for combine in (operator.truediv, operator.sub, operator.lt):
        with pytest.raises(ConfigError, match=r"tok/s and ms"):
            combine(rate, time)
    with pytest.raises(ConfigError, match="no measured quantity"):
        rate / 2  # type: ignore[operator]  # as a user would


def test_measured_apart_both_intervals_count() -> None:
    """A ratio and a difference of two figures are as uncertain as both together."""
    ratio = figure(90, 100, 110) / figure(45, 50, 55)
    assert ratio >= 1.7
    assert (ratio >= 1.9).outcome is Outcome.INCONCLUSIVE
    assert (ratio >= 2.4).outcome is Outcome.FAIL
    assert figure(90, 100, 110) - figure(45, 50, 55) >= 38
    assert (figure(90, 100, 110) - figure(85, 99, 115) >= 0).outcome is Outcome.INCONCLUSIVE


def test_two_quantities_are_compared_by_their_difference() -> None:
    """Rates have the ratio against 1, shares and changes the difference against 0."""
    assert figure(90, 100, 110) > figure(45, 50, 55)
    assert (figure(90, 100, 110) < figure(45, 50, 55)).outcome is Outcome.FAIL
    assert figure(0.1, 0.1, 0.1, SHARE) < figure(0.2, 0.2, 0.2, SHARE)
    assert (figure(0.1, 0.1, 0.1, CHANGE) < figure(-0.2, -0.2, -0.2, CHANGE)).outcome == "FAIL"
    size = figure(5, 5, 5, "GiB")
    assert (size <= replace(size, name="as large")).outcome is Outcome.PASS
    with pytest.raises(ConfigError, match="q5 is compared with itself"):
        size <= figure(5, 5, 5, "GiB")  # noqa: B015  # it raises


def test_ratios_have_a_difference() -> None:
    """1.9 less 1.2 is 0.7, and not a quotient again."""
    first = figure(95, 95, 95) / figure(50, 50, 50)
    second = figure(24, 24, 24) / figure(20, 20, 20)
    difference = first - second
    assert difference.estimate.point == pytest.approx(0.7)
    assert difference <= 0.71
    assert second - first <= -0.69


class Rung:
    """Scores of one quantization, as far as its quantities need them."""

    at_most = None

    def __init__(self, name: str) -> None:
        self.name = name

    def subject(self, metric: str) -> Subject:
        """Name a quantity of it."""
        return Subject(f"{metric} {self.name}", "live")

    def guard_findings(self) -> tuple[()]:
        """Find nothing."""
        return ()

    def result(self) -> Any:
        """Give values for guards to compare, which no two quantizations share."""
        ppl = SimpleNamespace(ppl=SimpleNamespace(value=5.0))
        ran = SimpleNamespace(sha256=self.name, requested=self.name)
        own = float(sum(map(ord, self.name)))
        return SimpleNamespace(work={}, nll=[[own]], ran=ran, comparison=ppl)


def scored(name: str, kind: Any, *chunks: float, tokens: int = 4) -> Scored:
    """A quantity of text whose chunks have these means."""
    values = [[chunk - 0.1, chunk + 0.1] * (tokens // 2) for chunk in chunks]
    unit = {"mean": "nats", "change": CHANGE, "ppl": ""}[kind]
    rungs: Any = (Rung(name),)
    return Scored(name, unit, Book(), "KLD", kind, rungs, lambda: values)


def test_scores_are_paired_by_chunk() -> None:
    """A part that all chunks share is in neither a difference nor a ratio of two quantizations."""
    hard = (0.1, 0.5, 0.9, 0.2, 0.7, 0.4)
    q8 = scored("q8", "mean", *hard)
    q4 = scored("q4aaa", "mean", *(3 * chunk for chunk in hard))
    assert q8 < q4
    assert q8 / q4 <= 0.34
    assert (q8 / q4 <= 0.3).outcome is Outcome.FAIL
    difference = q4 - q8
    assert difference > 0
    again = replace(q4 - q8, name="again")
    assert (difference - again).find().estimate.point == pytest.approx(0)


@pytest.mark.parametrize("kind", ["mean", "change", "ppl"])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_two_to_four_chunks_decide_nothing(kind: str, n: int) -> None:
    """Neither a limit that is far off nor an order is shown by fewer than five chunks."""
    low = scored("low", kind, *(0.01, 0.011, 0.009, 0.012, 0.01)[:n])
    high = scored("high", kind, *(0.9, 0.91, 0.92, 0.9, 0.91)[:n])
    limit = "500%" if kind == "change" else 5
    for verdict, decided in (
        (low < limit, "PASS"),
        (low > limit, "FAIL"),
        (low < high, "PASS"),
        (high / low < 1, "FAIL"),
    ):
        assert verdict.outcome == (decided if n == 5 else "INCONCLUSIVE")
        assert ("at least 5 chunks" in verdict.figures[0].estimate.method) is (n < 5)


def test_changes_of_ppl_are_compared_on_the_same_tokens() -> None:
    """PPL has a ratio, its changes a difference, both from paired NLL."""
    base = (0.5, 0.9, 0.7, 0.6, 0.8)
    one, other = scored("one", "ppl", *base), scored("three", "ppl", *(b + 0.1 for b in base))
    ratio = (other / one).estimate
    assert ratio.point == pytest.approx(1.1051709)
    assert ratio.high - ratio.low < 1e-9
    assert one < other
    less, more = (
        scored("less", "change", 0.01, 0.02, 0.01, 0.02, 0.01),
        scored("more", "change", 0.05, 0.06, 0.05, 0.06, 0.05),
    )
    assert less < more
    assert less / more < 0.5


def test_a_ratio_of_changes_can_be_negative() -> None:
    """A gain over a loss is compared with a ratio of rates by their difference."""
    gain = scored("gain", "change", -0.01, -0.02, -0.01, -0.02, -0.01)
    loss = scored("loss", "change", 0.05, 0.06, 0.05, 0.06, 0.05)
    rates = figure(80, 80, 80) / figure(100, 100, 100)
    assert gain / loss < 0
    assert gain / loss < rates
    assert (rates < gain / loss).outcome is Outcome.FAIL
    assert (gain / loss > -1).outcome is Outcome.PASS


@given(
    st.sampled_from(sorted(OPERATORS)), st.floats(1, 1e6), st.floats(0.1, 0.5), st.floats(1, 2e6)
)
def test_no_claim_and_its_opposite_both_pass(
    sign: str, point: float, width: float, limit: float
) -> None:
    """At most one of a comparison and its negation is shown, for any measurement."""
    negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[sign]
    quantity: Quantity = figure(point * (1 - width), point, point * (1 + width))
    outcomes = {OPERATORS[s](quantity, limit).outcome for s in (sign, negated)}
    assert outcomes in ({Outcome.PASS, Outcome.FAIL}, {Outcome.INCONCLUSIVE})
