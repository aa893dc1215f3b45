"""Prompts of a number of tokens that no server has seen before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.served_api import Api
from pytest_asperf.worker.served_model import ServedModel
from pytest_asperf.worker.served_prompts import Prompts, is_near
from pytest_asperf.worker.serving.record import Endpoint

#: Requests of a server that does not run.
API = Api(Endpoint("http", "127.0.0.1", 1), "/v1/completions")
TEXT = "def area(width, height):\n    return width * height  # in square metres\n" * 60


def by_words(prompt: str) -> int:
    """Count words."""
    return len(prompt.split())


def by_bytes(prompt: str) -> int:
    """Count as a tokenizer of three bytes a token, with BOS."""
    return 1 + -(-len(prompt) // 3)


@given(st.integers(16, 300), st.sampled_from([by_words, by_bytes]))
def test_a_prompt_has_the_tokens_that_are_asked_for(n_tokens: int, count: object) -> None:
    """For any tokenizer, and each time anew."""
    assert count in {by_words, by_bytes}
    counting = by_words if count is by_words else by_bytes
    prompts = Prompts(counting)
    drawn = [prompts.draw(TEXT, n_tokens) for _ in range(3)]
    assert [counting(prompt) for prompt in drawn] == [n_tokens] * 3


def test_no_two_prompts_begin_alike() -> None:
    """The first words are drawn anew: two prompts' common part is too short for a cache."""
    prompts = Prompts(by_words)
    drawn = [prompts.draw(TEXT, 64) for _ in range(50)]
    assert len({prompt.split("\n")[0] for prompt in drawn}) == 50


def test_counting_that_costs_a_request_is_done_once() -> None:
    """A length that was found once is used again, though words differ in their tokens."""
    asked: list[str] = []

    def count(prompt: str) -> int:
        asked.append(prompt)
        return by_bytes(prompt)

    prompts = Prompts(count, is_cheap=False)
    first = prompts.draw(TEXT, 100)
    n_asked = len(asked)
    assert is_near(by_bytes(prompts.draw(TEXT, 100)), 100)
    assert (by_bytes(first), len(asked)) == (100, n_asked)
    assert n_asked < 12


@pytest.mark.parametrize("n_tokens", [3, 100])
def test_a_counted_prompt_is_short_and_no_earlier_one_with_more(n_tokens: int) -> None:
    """A server may compute all of it, and fail if a prompt is an earlier one with its answer."""
    asked: list[str] = []

    def count(prompt: str) -> int:
        asked.append(prompt)
        return by_words(prompt)

    Prompts(count, is_cheap=False).draw(TEXT, n_tokens)
    assert max(map(by_words, asked)) < 200
    assert len({prompt.split("\n")[0] for prompt in asked}) == len(asked) > 1


def test_a_counted_text_is_in_no_earlier_prompt() -> None:
    """The prompt without the text is counted after the one with it, and never again."""
    asked: list[str] = []

    def count(prompt: str) -> int:
        asked.append(prompt)
        return by_words(prompt)

    model = ServedModel(API, count, {}, {})
    assert [model.text_tokens("one two") for _ in range(2)] == [2, 2]
    assert asked[0].startswith(asked[1])
    assert asked[2].startswith(asked[3])
    assert len(set(asked)) == 4


def test_a_server_that_fails_to_count_is_no_server_without_counts() -> None:
    """Its error is the result, and not that a text has no known length."""

    def count(_: str) -> int:
        raise RefusalError("server", "no memory")

    with pytest.raises(RefusalError, match="no memory"):
        ServedModel(API, count, {}, {}).text_tokens("one")


def test_a_text_that_is_too_short_is_refused() -> None:
    """It is not repeated: a server's cache may have it then."""
    with pytest.raises(RefusalError, match="the text has 10 tokens, and 64 were requested"):
        Prompts(by_words).draw("one two three four", 64)
