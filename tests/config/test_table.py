import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.table import (
    BOOLEAN,
    ID,
    NUMBER,
    PAIR,
    TABLE,
    TEXT,
    TEXTS,
    CheckedTable,
    Rule,
    one_of,
    whole,
)
from pytest_asperf.errors import ConfigError

RULES = (BOOLEAN, ID, NUMBER, PAIR, TABLE, TEXT, TEXTS, one_of(("on", "off")), whole(0, 9))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(value=VALUES)
def test_any_value_is_read_or_refused_with_its_place(value: object) -> None:
    """No value of any kind ends in another error, and a message names place, key and remedy."""
    for rule in RULES:
        try:
            rule.checked(value, "x.toml: a", "a")
        except ConfigError as error:
            assert error.what.startswith("x.toml: a: ")  # noqa: PT017  # any value may be usable
            assert error.remedy == f"a takes {rule.accepts}"  # noqa: PT017


@pytest.mark.parametrize("value", [True, math.inf, math.nan, 10**400, Decimal("1e400"), "1"])
def test_what_is_no_finite_number(value: object) -> None:
    """Booleans, text and values beyond floats are not numbers."""
    with pytest.raises(ConfigError, match="a takes a finite number"):
        NUMBER.checked(value, "t: a", "a")


def test_a_nested_table_names_the_way_to_a_key() -> None:
    """Dotted as TOML writes it, and by words where the entries of a list have no key."""
    file = CheckedTable("x.toml", {"models": {"a": {"n": "8"}}})
    models = file.inner("models", file.values["models"], separator=".")
    with pytest.raises(ConfigError, match=r"^x\.toml: models\.a\.n: '8' is not usable"):
        models.inner("a", models.values["a"]).need("n", whole(0, 9))
    with pytest.raises(ConfigError, match=r"^x\.toml: table t: n: is missing"):
        file.inner("table t", {}).need("n", whole(0, 9))


def test_an_unknown_key_names_the_nearest() -> None:
    """A misspelt key raises with the name of its place."""
    table = CheckedTable("test_it", {"chunk": 1}, "argument")
    with pytest.raises(ConfigError, match="unknown argument 'chunk'; did you mean 'chunks'"):
        table.only(("chunks", "baseline"))


def test_a_hint_stands_behind_the_value() -> None:
    """The rule's knowledge of the mistake is part of the message."""
    with pytest.raises(ConfigError, match="'onn' is not usable; did you mean 'on'"):
        one_of(("on", "off")).checked("onn", "t")
    assert Rule(str, "anything").because("so").why == "so"
