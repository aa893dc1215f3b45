"""The pages of the reference have every quantity and name."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf import ConfigError

WRITER = Path(__file__).parents[1] / "docs" / "reference.py"


@pytest.fixture
def writer() -> dict[str, Any]:
    """Return the names of the module that writes the pages."""
    return runpy.run_path(str(WRITER))


def test_a_public_name_that_the_page_lacks_is_an_error(writer: dict[str, Any]) -> None:
    """A new name cannot be left out of the page of names."""
    del writer["NAMES"]["Errors"]["BuildError"]
    with pytest.raises(ValueError, match="BuildError"):
        writer["names_page"]()


def test_the_page_has_every_fixture(writer: dict[str, Any]) -> None:
    """Each fixture is listed, and those that give quantities have examples."""
    names = [row[0].strip("`") for row in writer["_fixture_rows"]()]
    assert sorted(names) == sorted([*writer["EXAMPLES"], "hardware", "quant", "kv_type"])


@pytest.mark.parametrize(
    ("example", "instead", "error"),
    [
        ('throughput("tg128").cv < "1%"', 'throughput("tg64") > 1', ValueError),
        ('model.size <= "5 GiB"', "model.size <= '5 ms'", ConfigError),
        ("perplexity.kld < 0.01", "perplexity.divergence < 0.01", AttributeError),
        ('latency("load") <= "2 s"', 'latency("load") < throughput("tg128")', ValueError),
    ],
)
def test_an_example_that_does_not_hold_is_an_error(
    writer: dict[str, Any], example: str, instead: str, error: type[Exception]
) -> None:
    """A missing quantity, a wrong unit and a misspelt name never reach the page."""
    examples = writer["EXAMPLES"]
    for fixture, lines in examples.items():
        examples[fixture] = tuple(instead if line == example else line for line in lines)
    with pytest.raises(error):
        writer["quantities_page"]()


def test_each_function_has_an_example(writer: dict[str, Any]) -> None:
    """An example too many, or too few, is an error."""
    writer["quantities_page"].__globals__["FUNCTIONS"] = writer["FUNCTIONS"][1:]
    with pytest.raises(ValueError, match="an example of each function"):
        writer["quantities_page"]()


def test_each_guard_has_its_text(writer: dict[str, Any]) -> None:
    """A guard that guards.toml does not explain is an error."""
    guards = writer["_guards"].__globals__
    assert writer["_guards"]().count("\n### ") + 1 == len(guards["Guard"])
    guards["Guard"] = [*guards["Guard"], "a-new-guard"]
    with pytest.raises(ValueError, match="a-new-guard"):
        writer["_guards"]()
