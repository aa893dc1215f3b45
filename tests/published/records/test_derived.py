from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.errors import ConfigError
from pytest_asperf.published.records import DerivedCheck, derived_checks, parse_recorded
from pytest_asperf.published.records.formulas import FORMULAS

POSITIVE = st.floats(min_value=1, max_value=1000)


def check_of(formula: str, inputs: Sequence[str], printed: str) -> DerivedCheck:
    """Return the check of one derived figure over inputs as printed."""
    cells = "\n".join(f"i{n} = {{ x = {text} }}" for n, text in enumerate(inputs))
    names = ", ".join(f'"i{n}/x"' for n in range(len(inputs)))
    text = f"""
schema = 1
[source]
id = "s"
title = "t"
[[table]]
id = "t"
title = "t"
where = "w"
columns.x = {{ metric = "x", kind = "measured" }}
columns.y = {{ metric = "y", kind = "derived", formula = "{formula}", from = [{names}] }}
[table.rows]
{cells}
out = {{ y = {printed} }}
"""
    return derived_checks(parse_recorded([("t.toml", text)]))[0]


@pytest.mark.parametrize(
    ("formula", "inputs", "printed", "follows"),
    [
        ("ratio", ["62.0", "36.8"], "1.68", True),
        ("ratio", ["62.0", "36.8"], "1.70", False),
        ("percent_change", ["53.3", "42.4"], "25.7", True),
        ("percent_change", ["153", "120"], "28", True),
        ("percent_change", ["12.668", "11.055"], "14.57", False),
        ("percent_less", ["3.46", "8.42"], "59", True),
        ("percent_of", ["30", "680"], "4.4", True),
        ("utilisation", ["42.4", "12.07", "800"], "64", True),
        ("difference", ["40.602", "11.055"], "29.55", True),
        ("sum", ["0.22", "1.58"], "1.8", True),
        ("product", ["2", "3"], "7", True),
        ("product", ["2.0", "3.0"], "7.0", False),
        ("part", ["32", "60"], "19.2", True),
        ("seconds", ["332", "96"], "15", False),
        ("mean", ["55.1", "53.6", "51.2"], "53.3", True),
        ("least", ["11.3", "15.8"], "11.3", True),
        ("most", ["11.3", "15.8"], "15.8", True),
        ("span", ["-79.2", "-82.6"], '"79-83"', True),
        ("span", ["21", "87"], '"20-87"', False),
        ("rate_from_ms", ["422", "17831"], "23.7", True),
        ("ms_from_rate", ["16.0"], '"~62"', True),
        ("extra_ms", ["16.0", "86.6"], "51", True),
        ("weights_gb", ["70", "4.9"], "39.9", False),
        ("speculation", ["3.3", "4", "42.4", "140.2"], "53.3", False),
        ("speculation", ["3.3", "4", "42.4", "140.2"], "15", True),
        ("same", ["0.18"], "0.18", True),
    ],
)
def test_a_figure_follows_or_not(
    formula: str, inputs: list[str], printed: str, *, follows: bool
) -> None:
    """Each formula is computed over the rounding of its inputs."""
    check = check_of(formula, inputs, printed)
    assert check.follows == follows
    assert ("does not follow" in str(check)) != follows


def test_dividing_by_what_may_be_zero_is_named() -> None:
    """0 as printed may be plus or minus up to a half."""
    with pytest.raises(ConfigError, match="s/t/out/y: a / b divides by a figure that may be 0"):
        check_of("ratio", ["3", "0"], "1")


def test_every_formula_has_a_case() -> None:
    """No formula goes untried."""
    mark = test_a_figure_follows_or_not.pytestmark[0]  # type: ignore[attr-defined]  # pytest's own
    assert {case[0] for case in mark.args[1]} == set(FORMULAS)


@given(POSITIVE, POSITIVE, st.sampled_from(["ratio", "percent_change", "percent_less", "product"]))
def test_a_figure_worked_out_before_rounding_follows(a: float, b: float, formula: str) -> None:
    """A document that computes with full decimals and rounds all for print is not accused."""
    printed = f"{FORMULAS[formula].compute(a, b):.2f}"
    assert check_of(formula, [f"{a:.1f}", f"{b:.1f}"], printed).follows


@given(POSITIVE, POSITIVE)
def test_the_point_lies_within_the_interval(a: float, b: float) -> None:
    """The result of the printed inputs is within the bounds of their rounding."""
    inputs = f"{a:.2f}", f"{b:.2f}"
    check = check_of("ratio", inputs, "1")
    assert check.low <= float(inputs[0]) / float(inputs[1]) <= check.high
