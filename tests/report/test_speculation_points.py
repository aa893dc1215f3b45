"""The chart and the table of speculation, from records alone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.records.kinds import AnyRecord, SpeculationRecord
from pytest_asperf.report.charts import gains
from pytest_asperf.report.markup import serialised
from pytest_asperf.report.measurements import explanation, predicted_at, speculation_of
from tests.report import sample_reports as samples


def _estimate(point: float, half: float | None, unit: str) -> Estimate:
    reach = math.inf if half is None else half
    return Estimate(point, point - reach, point + reach, 5, method="by hand", unit=unit)


def _row(
    label: str = "d → t, k=4", *, ratio: float = 5.0, half: float | None = 0.05, **changed: Any
) -> SpeculationRecord:
    """Return a record of rounds that emit 3 tokens for 4 / ratio + 2 steps."""
    gain = 3 / (4 / ratio + 2) - 1
    known: dict[str, Any] = {
        "gain": _estimate(gain, half, "change"),
        "ratio": _estimate(ratio, None if half is None else 0.1 * ratio, "x"),
        "predicted_gain": _estimate(gain, None, "change"),
        "acceptance": 0.5,
        "mean_length": 3.0,
        "drafting": 4 / ratio,
        "verifying": 2.0,
        "break_even_ratio": 4.0,
    }
    return replace(samples.speculation(label, gain, ratio), **(known | changed))


def test_the_curve_is_the_model_and_crosses_zero_at_break_even() -> None:
    """It gives the prediction at the pair's own ratio, and those of other drafts."""
    (point,) = speculation_of([_row(ratio=5.0)])
    assert predicted_at(point, 5.0) == pytest.approx(point.predicted_gain.point)
    assert predicted_at(point, 10.0) == pytest.approx(sd_model.gain(3.0, 4, 0.1, 2.0))
    assert predicted_at(point, point.break_even_ratio or 0) == pytest.approx(0)


def test_what_several_tests_share_is_one_point() -> None:
    """And rows of other measurements are none."""
    rows: list[AnyRecord] = [_row(), samples.rates("m"), _row(), _row(ratio=2.0)]
    assert [point.ratio.point for point in speculation_of(rows)] == [5.0, 2.0]


def test_what_explains_a_gain_is_one_text() -> None:
    """Ratio, break-even and prediction, in figures without exponents."""
    (point,) = speculation_of([_row("b", ratio=4321.0)])
    assert "ratio 4,321 x, break-even " in explanation(point)
    assert "+49.9 %" in explanation(point)


def test_a_broken_measurement_is_named_and_not_drawn() -> None:
    """A measurement that guards found INVALID must not look like a gain."""
    broken = GuardFinding("x", Consequence.INVALID, "y", "z")
    points = speculation_of([_row(), _row("other", ratio=20.0, guards=(broken,))])
    assert serialised(gains(points)).count(b'class="curve"') == 1
    assert "INVALID" in explanation(points[1])


@pytest.mark.parametrize(
    "raw",
    [
        {"half": None},
        {"ratio": 5000.0},
        {"ratio": 0.01},
        {"break_even_ratio": None},
        {"break_even_ratio": 1e9},
    ],
)
def test_extremes_are_drawn(raw: dict[str, Any]) -> None:
    """A lookup's ratio, a draft slower than its target, no interval and no break-even."""
    drawn = serialised(gains(speculation_of([_row(**raw), _row(ratio=2.0)])))
    assert drawn.count(b'class="curve"') == 2
    assert b"nan" not in drawn
