import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.intervals import mean_interval_t
from pytest_asperf.errors import ConfigError, MeasurementError
from pytest_asperf.published.findings.evidence import Evidence, assumed_spreads
from pytest_asperf.published.findings.terms import FigureTerm, FormulaTerm, PrintedTerm, Variation
from pytest_asperf.published.records import RecordedCell, Records, shipped_records
from tests.published.findings.conftest import MakeRecords


def evidence(records: Records) -> Evidence:
    """Return records as evidence."""
    return Evidence({cell.id: cell for cell in records.cells()}, assumed_spreads())


def test_a_published_spread_gives_students_interval(make_records: MakeRecords) -> None:
    """N and sd make the interval that the runs themselves would, but for the log scale."""
    runs = (99.0, 100.0, 101.0)
    made = evidence(make_records("a = { tg = { value = 100.0, raw = 100.0, sd = 1.0, n = 3 } }"))
    own, theirs = made.estimate(FigureTerm("r/t/a/tg")), mean_interval_t(runs, unit="tok/s")
    assert (own.low, own.high) == pytest.approx((theirs.low, theirs.high), rel=1e-3)
    assert (own.n, own.counted) == (3, "runs")


def test_a_missing_spread_is_assumed_and_said(make_records: MakeRecords) -> None:
    """A single figure gets the interval of the assumption, and is marked."""
    found = evidence(make_records("a = { tg = { value = 100.0, raw = 100.0 } }")).estimate(
        FigureTerm("r/t/a/tg")
    )
    assert found.high == pytest.approx(100 * math.exp(1.645 * 0.17), rel=1e-3)
    assert "assumed" in found.method
    assert found.counted == "figure, n not published"


def test_runs_narrow_an_assumed_spread(make_records: MakeRecords) -> None:
    """With n published and the spread not, the mean's error falls with n."""
    made = evidence(
        make_records("a = { tg = { value = 100, raw = 100, n = 4 } }\nb = { tg = 100 }")
    )
    four, one = (made.estimate(FigureTerm(f"r/t/{row}/tg")) for row in "ab")
    assert four.high - four.low < (one.high - one.low) * 0.55


def test_rounding_enters(make_records: MakeRecords) -> None:
    """A printed figure means plus or minus half a unit of its last digit, a raw one does not."""
    made = evidence(make_records("a = { tg = { value = 2, sd = 0, n = 3 } }"))
    found = made.estimate(FigureTerm("r/t/a/tg"))
    assert (found.low, found.high) == (1.5, 2.5)


def test_a_metric_of_which_nothing_is_known_has_no_interval(make_records: MakeRecords) -> None:
    """No assumption is no certainty."""
    found = evidence(make_records("a = { odd = 2 }")).estimate(FigureTerm("r/t/a/odd"))
    assert not found.has_interval


def test_what_follows_takes_its_inputs_and_not_the_printed_figure(
    make_records: MakeRecords,
) -> None:
    """A derived figure counts as its inputs' result, unless its printed value is requested."""
    rows = "base = { tg = { value = 10, raw = 10, sd = 0, n = 3 } }\n"
    rows += 'a = { tg = { value = 20, raw = 20, sd = 0, n = 3 }, ratio = { value = 3.0, follows = false, why = "no" } }'  # noqa: E501
    made = evidence(make_records(rows))
    assert made.estimate(FigureTerm("r/t/a/ratio")).point == 2.0
    assert made.estimate(PrintedTerm("r/t/a/ratio")).point == 3.0


def test_a_zero_in_the_denominator_decides_nothing(make_records: MakeRecords) -> None:
    """A quotient by a possible zero has no bounds, and one by zero itself raises."""
    rows = "a = { tg = { value = 1, raw = 1, sd = 0, n = 3 }, size = 2, lines = 0 }"
    made = evidence(make_records(rows))
    size, zero = FigureTerm("r/t/a/size"), PrintedTerm("r/t/a/lines")
    assert made.estimate(zero).low < 0 < made.estimate(zero).high
    shifted = FormulaTerm("sum", (zero, FigureTerm("r/t/a/tg")))
    pole = FormulaTerm("difference", (shifted, FigureTerm("r/t/a/tg")))
    assert made.estimate(FormulaTerm("ratio", (size, shifted))).has_interval
    with pytest.raises(MeasurementError, match="divides by zero"):
        made.estimate(FormulaTerm("ratio", (size, pole)))


def test_variation_needs_a_standard_deviation(make_records: MakeRecords) -> None:
    """An unpublished figure cannot be judged."""
    made = evidence(make_records("a = { tg = { value = 10, sd = 1, n = 3 } }\nb = { tg = 10 }"))
    found = made.estimate(Variation("r/t/a/tg"))
    assert found.point == pytest.approx(10)
    assert found.low < 6
    assert found.high > 40
    with pytest.raises(ConfigError, match="standard deviation is not published"):
        made.estimate(Variation("r/t/b/tg"))


@given(
    value=st.floats(1, 1000),
    spreads=st.tuples(st.floats(0, 100), st.floats(0, 100)),
    n=st.integers(2, 30),
    fewer=st.integers(0, 28),
)
def test_worse_evidence_is_never_narrower(
    make_records: MakeRecords, value: float, spreads: tuple[float, float], n: int, fewer: int
) -> None:
    """More spread or fewer runs give an interval that contains the better one's."""
    rows = "".join(
        f"{row} = {{ tg = {{ value = 1.0, raw = {value:.9f}, sd = {spread:.9f}, n = {runs} }} }}\n"
        for row, spread, runs in (("a", spreads[0], n), ("b", sum(spreads), max(n - fewer, 2)))
    )
    made = evidence(make_records(rows))
    better, worse = (made.estimate(FigureTerm(f"r/t/{row}/tg")) for row in "ab")
    assert worse.low <= better.low + 1e-9
    assert better.high <= worse.high + 1e-9


def _relative_spreads(metric: str) -> set[float]:
    """Return every different published coefficient of variation of a metric."""
    return {
        round(cell.spread.sd / cell.value, 4)
        for cell in shipped_records().cells()
        if cell.metric == metric and cell.spread.sd and cell.spread.n
    }


def _rms(values: list[float] | set[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in values) / len(values))


def column(cells: dict[str, RecordedCell], table: str, name: str) -> list[RecordedCell]:
    """The figures in a column of a published table."""
    found = [
        cell
        for id_, cell in cells.items()
        if id_.startswith(f"{table}/") and id_.endswith(f"/{name}")
    ]
    assert found
    return found


@pytest.mark.parametrize("metric", ["TG", "PP"])
def test_assumed_spreads_are_those_recorded(metric: str) -> None:
    """Without a published spread, the assumption is the root mean square of the published ones."""
    (general,) = (s for s in assumed_spreads() if metric in s.metrics and not s.source)
    assert general.cv is not None
    assert _rms(_relative_spreads(metric)) <= general.cv * 1.01 <= 0.19


def test_a_study_that_repeated_itself_is_taken_at_its_word() -> None:
    """The spread assumed of the one study's TG covers the difference of its later session."""
    (own,) = (s for s in assumed_spreads() if "TG" in s.metrics and s.source == "disagg-page")
    cells = shipped_records().by_id()
    changes = []
    for first in column(cells, "disagg-page/mlx", "tg"):
        row = first.id.split("/")[2]
        later = cells[f"disagg-page/raw-later-runs/mlx-{row}/tg"]
        changes.append(abs(math.log(later.value / first.value)) / math.sqrt(2))
    assert own.cv is not None
    assert len(changes) == 12
    assert _rms(changes) <= own.cv


def test_ranges_of_ttft_are_covered() -> None:
    """The spread assumed of TTFT is that of the three published ranges."""
    (own,) = (s for s in assumed_spreads() if "TTFT" in s.metrics)
    cells = shipped_records().by_id()
    spreads = []
    for prompt in ("short", "medium", "long"):
        cell = cells[f"disagg-page/ttft/{prompt}/ane_lm"]
        assert cell.spread.observed is not None
        low, high = cell.spread.observed
        spreads.append((high - low) / 1.693 / cell.value)
    assert own.cv is not None
    assert _rms(spreads) <= own.cv


def test_the_error_of_an_increase_is_covered() -> None:
    """The standard error assumed of a PPL increase covers those of the published intervals."""
    (own,) = (s for s in assumed_spreads() if s.se is not None)
    assert own.se is not None
    cells = column(shipped_records().by_id(), "atom-paper/perplexity", "dppl_pct")
    assert cells
    for cell in cells:
        assert cell.spread.interval is not None
        low, high = cell.spread.interval
        # 2.262: Student's t at 95 % for 10 chunks.
        assert (high - low) / 2 / 2.262 / cell.value <= own.se
