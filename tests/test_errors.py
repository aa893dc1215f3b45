from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_asperf.config.markers import parse_hardware, parse_kv_ladder, parse_ladder, parse_model
from pytest_asperf.errors import (
    SETTING_NAMES,
    Advice,
    AsperfError,
    ConfigError,
    listing,
    shown,
    suggest,
)


class Hostile:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise MemoryError("no repr")


@pytest.mark.parametrize("value", [Hostile(), [Hostile()], 10**5000], ids=["object", "list", "int"])
def test_a_value_that_cannot_be_shown_is_named_by_its_type(value: object) -> None:
    """A repeated text in a message never raises from within the message."""
    assert shown(value).startswith(f"<{type(value).__name__} whose repr fails with ")


@pytest.mark.parametrize("parse", [parse_hardware, parse_kv_ladder, parse_ladder, parse_model])
def test_a_marker_argument_that_cannot_be_shown_is_refused(parse: object) -> None:
    """A marker with such an argument raises in asperf's words."""
    assert callable(parse)
    with pytest.raises(ConfigError, match="<Hostile whose repr fails with MemoryError>"):
        parse((Hostile(),), {}, where="test_it")


def test_every_part_of_an_error_is_bounded() -> None:
    """A value of 1 MB is cut in its middle, at any place in the message."""
    long = f"begin {'x' * 10**6} end"
    error = AsperfError(long, why=long, remedy=long, opt_out=long, detail=long)
    text = str(error)
    assert len(text) < 60_000
    assert text.count("begin x") == text.count("x end") == 5
    assert max(len(part) for part in error.args) < 50_000


def test_only_text_has_a_nearest_word() -> None:
    """A value of any type can be looked up."""
    assert suggest(Hostile(), ["engine"]) == ""
    assert suggest("engin" + "e" * 10**6, ["engine"]) == ""
    assert suggest("engin", ["engine"]) == "; did you mean 'engine'?"


@pytest.mark.parametrize("value", [Hostile(), 10**5000, "9" * 10**6], ids=["object", "int", "text"])
def test_a_setting_that_cannot_be_shown_is_refused(value: object) -> None:
    """An engine setting of any kind and length is rejected by its name."""
    with pytest.raises(ConfigError, match="n_gpu_layers: ") as caught:
        parse_model(("asperf-draft",), {"n_gpu_layers": value}, where="test_it")
    assert len(caught.value.what) < 300


def test_a_list_is_bounded_by_words_and_by_its_only_word() -> None:
    """Names left out are counted, and one word that is too long is cut in its middle."""
    assert listing(f"name{n:03}" for n in range(100)).endswith("name025 and 74 more")
    only = listing(["a" * 1000])
    assert len(only) == 240
    assert only.strip("a") == "…"


def test_an_advice_is_worded_where_it_is_read() -> None:
    """Two builds start in threads, which do not have the names of the program's settings."""
    names = SETTING_NAMES.set(lambda key, value: f"--{key}={value}")
    try:
        with ThreadPoolExecutor(1) as pool:
            advice = Advice("take more", chunks=4)
            error = pool.submit(lambda: AsperfError("x", remedy=advice)).result()
        assert error.remedy == "take more: --chunks=4"
        assert "what to do:     take more: --chunks=4" in str(error)
    finally:
        SETTING_NAMES.reset(names)
