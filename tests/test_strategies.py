"""The strategies of Hypothesis for users: usable by construction, and small once shrunk."""

import sys
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from pytest_asperf import strategies
from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.config.engines import parse_level
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import ConfigError

ENGINES: list[Any] = ["llama_cpp", "mlx"]


@settings(max_examples=30)
@given(strategies.prompts(max_chars=40), strategies.workloads())
def test_texts_and_workloads_are_usable(prompt: str, workload: str) -> None:
    """A prompt has two characters that UTF-8 can carry; a workload's name is one."""
    assert 2 <= len(prompt) <= 40
    assert "\0" not in prompt
    assert prompt.encode()
    assert parse_workload(workload, where="").name == workload


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=30)
@given(data=st.data())
def test_settings_and_levels_are_the_engines_own(engine: Any, data: st.DataObject) -> None:
    """Each setting and quantization is one that the engine has, and none is in a sweep twice."""
    drawn = data.draw(strategies.settings(engine))
    parse_settings(drawn, where="")
    levels = data.draw(strategies.ladders(engine))
    assert [parse_level(level, where="", engine=engine) for level in levels] == list(levels)
    assert len(set(levels)) == len(levels) >= 2


def test_examples_shrink_to_simple_ones() -> None:
    """A property that fails everywhere is reported with the least input."""
    drawn = st.tuples(
        strategies.prompts(),
        strategies.workloads(),
        strategies.settings("llama_cpp"),
        strategies.ladders("llama_cpp"),
    )
    few = settings(max_examples=20, database=None)
    assert find(drawn, lambda _: True, settings=few) == ("00", "tg1", {}, ("Q8_0", "Q6_K"))


def test_bits_say_how_many_a_weight_takes() -> None:
    """Scales count, and a typo is an error."""
    assert strategies.bits("q8_0") == 8.5
    with pytest.raises(ConfigError, match="unknown quantization 'Q8'"):
        strategies.bits("Q8")
    with pytest.raises(ConfigError, match="unknown engine 'llama'"):
        strategies.quants("llama")


def test_a_bounded_property_tries_so_many() -> None:
    """Its number of examples is the given one, at each run anew, and so is its time."""
    tried: list[int] = []

    @strategies.bounded(examples=7, seconds=60)
    @given(n=st.integers())
    def test(n: int) -> None:
        tried.append(n)

    test()
    assert len(tried) == 7
    test()
    assert len(tried) == 14


def test_a_failure_is_reported_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest known input fails again, and no other one is tried."""
    tried: list[int] = []
    now = iter(range(10**6))
    monkeypatch.setattr("pytest_asperf.strategies.time.monotonic", lambda: next(now))

    @strategies.bounded(examples=50, seconds=12)
    @given(n=st.integers())
    def test(n: int) -> None:
        tried.append(n)
        assert n < 1

    with pytest.raises(AssertionError):
        test()
    assert tried[-1] == min(n for n in tried if n >= 1)
    assert len(tried) < 20


def test_a_bounded_test_that_draws_nothing_is_an_error() -> None:
    """The decorators in the wrong order would bound nothing."""
    with pytest.raises(ConfigError, match="has no @given"):

        @strategies.bounded()
        def test() -> None:
            """Draw nothing."""


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional dependency."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "pytest_asperf.strategies")
    with pytest.raises(ImportError, match=r"pip install 'pytest-asperf\[properties\]'"):
        __import__("pytest_asperf.strategies")
