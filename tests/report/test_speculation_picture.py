"""The picture and the table of speculation, from rows alone."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import ConfigError
from pytest_asperf.records.kinds import GuardFacts
from pytest_asperf.report.speculation_picture import draw, look_of, require_matplotlib
from pytest_asperf.report.speculation_points import explanation, predicted_at, speculation_of
from tests.report import sample_reports as samples

if TYPE_CHECKING:
    from pytest_asperf.records.kinds import AnyRecord, SpeculationRecord

HEADLINE = ["asperf: hardware somewhere", "asperf: live, engine some"]


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
    """It gives the prediction at the pair's own ratio, and what other drafts would have given."""
    (point,) = speculation_of([_row(ratio=5.0)])
    assert predicted_at(point, 5.0) == pytest.approx(point.predicted_gain.point)
    assert predicted_at(point, 10.0) == pytest.approx(sd_model.gain(3.0, 4, 0.1, 2.0))
    assert predicted_at(point, point.break_even_ratio or 0) == pytest.approx(0)


def test_what_several_tests_share_is_one_point() -> None:
    """And rows of other measurements are none."""
    rows: list[AnyRecord] = [_row(), samples.rates("m"), _row(), _row(ratio=2.0)]
    assert [point.ratio.point for point in speculation_of(rows)] == [5.0, 2.0]


def test_the_same_rows_give_the_same_bytes() -> None:
    """Neither format holds a date, a version or a random name."""
    points = speculation_of([_row(), _row(ratio=2.0)])
    assert draw(points, HEADLINE) == draw(points, HEADLINE)


def test_a_users_own_style_does_not_change_it() -> None:
    """What somebody set up for other pictures stays out of ours, and is left as it was."""
    import matplotlib as mpl

    points = speculation_of([_row()])
    plain = draw(points, HEADLINE)
    with mpl.rc_context({"lines.linewidth": 9, "figure.facecolor": "red", "text.usetex": True}):
        assert draw(points, HEADLINE) == plain
        assert mpl.rcParams["lines.linewidth"] == 9


def test_it_is_readable_without_colours() -> None:
    """Twelve measurements differ in marker or line, and no colour is too light for paper."""
    looks = [look_of(number) for number in range(1, 13)]
    assert len({look[1:] for look in looks}) == 12
    assert len({look_of(number) for number in range(60)}) == 60
    for colour, _, _ in looks:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert 0.299 * red + 0.587 * green + 0.114 * blue < 0.65


def test_a_broken_measurement_is_named_and_not_drawn() -> None:
    """What guards found INVALID must not look like a gain."""
    colour = look_of(2)[0].lower()
    broken = GuardFacts(guard="x", consequence=Consequence.INVALID, found="y", rule="z")
    for found, is_drawn in (((), True), ((broken,), False)):
        points = speculation_of([_row(), _row("other", ratio=20.0, guards=found)])
        assert (colour in draw(points, [])["speculation.svg"].decode()) == is_drawn
        assert any("INVALID" in explanation(point) for point in points) != is_drawn


def test_nothing_measured_is_no_picture() -> None:
    """Both names are there, without content, so that older pictures go."""
    assert draw([], HEADLINE) == {"speculation.svg": b"", "speculation.png": b""}


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
    pictures = draw(speculation_of([_row(**raw), _row(ratio=2.0)]), HEADLINE)
    assert all(pictures.values())
    (point, _) = speculation_of([_row(**raw), _row(ratio=2.0)])
    assert (point.break_even_ratio is None) == (raw.get("break_even_ratio", 0) is None)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=60), st.sampled_from([1, 25]))
def test_foreign_text_stays_text(name: str, n: int) -> None:
    """No name breaks the picture's XML, is taken for mathematics, or lacks a letter of the font."""
    rows = [_row(f"$x{name}\x1b]&<b>$ {number}") for number in range(n)]
    pictures = draw(speculation_of(rows), [name])
    root = ET.fromstring(pictures["speculation.svg"])  # noqa: S314  # our own
    assert root.tag.endswith("svg")


def test_what_explains_a_gain_is_one_text() -> None:
    """Ratio, break-even and prediction, in figures without exponents."""
    (point,) = speculation_of([_row("b", ratio=4321.0)])
    assert "ratio 4,321 x, break-even " in explanation(point)
    assert "+49.9 %" in explanation(point)


def test_a_missing_library_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the option, the extra and a way without."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pytest-asperf\[plots\]") as error:
        require_matplotlib()
    assert "json:PATH" in str(error.value)
