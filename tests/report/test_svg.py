import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.estimate import CHANGE
from pytest_asperf.report.markup import Chart, Scale, shortened, shown

_VALUES = st.lists(st.floats(-1e99, 1e99), min_size=1, max_size=5)


@given(_VALUES, st.sampled_from(["linear", "logarithmic"]))
def test_every_value_lies_on_its_scale(values: list[float], kind: str) -> None:
    """Larger values lie further along, and ticks within the axis are few."""
    scale = Scale.around(values, 10, 110, is_log=kind == "logarithmic")
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(10 <= place <= 110 for place in places)
    ticks = scale.ticks()
    assert len(ticks) <= 9
    assert all(10 <= scale.at(tick) <= 110 for tick in ticks)
    assert all(shown(tick, "") for tick in ticks)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_a_place_gives_its_value_back(low: float, width: float) -> None:
    """An axis is straight: the half way is the middle."""
    scale = Scale.around([low, low + width], 10, 110)
    assert math.isclose(scale.at(low + width / 2), 60, rel_tol=1e-6)


def test_numbers_are_written_as_a_reader_writes_them() -> None:
    """Fractions are percent, thousands are grouped, and small numbers have no exponent."""
    assert [shown(0.125, CHANGE), shown(12345.6, "tok/s"), shown(0.00002, "nats")] == [
        "12.5 %",
        "12,346",
        "0.00002",
    ]


def test_a_long_name_keeps_its_ends() -> None:
    """Quantizations and sizes are at the end of a name."""
    assert shortened("a-long-name:Q4_K_M", 10) == "a-lon…_K_M"
    assert shortened("short", 10) == "short"


def test_an_empty_chart_has_a_size() -> None:
    """Browsers read its shape from the view box."""
    assert Chart(40).drawn().get("viewBox") == "0 0 360 40"
