"""The requests of a lone server's examination, without a server."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.lone_server import LoneServer, SentAgain, TimedAnswer
from tests.served import words_after

_MS = 1_000_000


def _sent(request: TimedAnswer, _temperature: float) -> SentAgain:
    """An answer that needs 20 ms, and 4 ms more for each token."""
    n = request.n_tokens
    return SentAgain(request.text[:n], n, is_chat=False, first_ns=(20 + 4 * n) * _MS, gap_ns=0.0)


def _together(_asked: Sequence[tuple[str, int]], _users: int) -> list[str]:
    """No answers: these are of one user."""
    raise AssertionError


def _is_right_for_users(
    sent: Callable[[TimedAnswer, float], SentAgain],
    together: Callable[[Sequence[tuple[str, int]], int], list[str]],
    prompt: str,
) -> bool:
    """True if a server of four users has no finding."""

    def timed() -> tuple[ServedRequest, TimedAnswer]:
        request = ServedRequest(0, event_ns=(_MS,), closed_ns=_MS, n_output=32)
        return request, TimedAnswer(prompt, None, 32, "")

    coin = random.Random(1)  # noqa: S311
    server = LoneServer(sent, together, len, timed, Workload("tg", 32, users=4), coin)
    return server._of_users(timed()) is None


def test_a_busy_client_sees_a_fast_answer_at_once() -> None:
    """While four busy loops ran, llama-server's 32 tokens of 0.1 ms came in one piece."""
    text = 8 * "one two "

    def timed() -> tuple[ServedRequest, TimedAnswer]:
        at_once = ServedRequest(0, event_ns=(7 * _MS,), closed_ns=7 * _MS, n_output=32)
        return at_once, TimedAnswer("a prompt", None, 32, text)

    def sent(request: TimedAnswer, _temperature: float) -> SentAgain:
        return replace(_sent(request, 0), first_ns=2 * _MS)

    coin = random.Random(1)  # noqa: S311
    server = LoneServer(sent, _together, len, timed, Workload("tg", 32), coin)
    assert server._of_delay(timed()) is None


@pytest.mark.parametrize("text", [64 * " ", 32 * "==", "x = [\n", 8 * "one two "])
def test_a_text_of_few_words_may_come_at_once(text: str) -> None:
    """Many servers keep a word until its end, and spaces until the next word."""

    def timed() -> tuple[ServedRequest, TimedAnswer]:
        at_once = ServedRequest(0, event_ns=(148 * _MS,), closed_ns=149 * _MS, n_output=32)
        return at_once, TimedAnswer("a prompt", None, 32, text)

    coin = random.Random(1)  # noqa: S311
    server = LoneServer(_sent, _together, len, timed, Workload("tg", 32), coin)
    finding = server._of_delay(timed())
    assert (finding is not None) == ("one two" in text)


@pytest.mark.parametrize("n_tokens", [20, 64, 128])
def test_no_prompt_is_an_earlier_one_with_its_answer(n_tokens: int) -> None:
    """mlx-lm 0.32.2 keeps both, and its thread ends with: "Sequence has an empty prompt"."""
    kept = set[tuple[str, ...]]()
    numbers = itertools.count()

    def sent(request: TimedAnswer, temperature: float) -> SentAgain:
        prompt, n = tuple(request.prompt.split()), request.n_tokens
        assert prompt not in kept
        words = words_after(request.prompt, request.seed if temperature != 0.001 else None, n)
        kept.add((*prompt, *words))
        return SentAgain(" ".join(words), n, is_chat=False, first_ns=_MS, gap_ns=_MS)

    def timed() -> tuple[ServedRequest, TimedAnswer]:
        prompt = " ".join(words_after(str(next(numbers)), 1, 40))
        times = tuple(range(_MS, (n_tokens + 1) * _MS, _MS))
        answer = TimedAnswer(prompt, 1, n_tokens, " ".join(words_after(prompt, 1, n_tokens)))
        return ServedRequest(0, event_ns=times, closed_ns=times[-1], n_output=n_tokens), answer

    workload = Workload("request", n_tokens, 40)
    for seed in range(100):
        coin = random.Random(seed)  # noqa: S311
        server = LoneServer(sent, _together, lambda text: len(text.split()), timed, workload, coin)
        assert server.examine(timed()).findings == ()


@pytest.mark.parametrize("how", ["sound", "wrong if late", "wrong if of another length"])
def test_users_prompt_while_others_are_answered_and_with_several_lengths(how: str) -> None:
    """The answer to one of four users is wrong then: three of four come again."""

    def sent(request: TimedAnswer, _temperature: float) -> SentAgain:
        words = words_after(request.prompt, request.seed, request.n_tokens)
        return SentAgain(" ".join(words), len(words), is_chat=False, first_ns=_MS, gap_ns=_MS)

    def together(asked: Sequence[tuple[str, int]], users: int) -> list[str]:
        sizes, answers = [len(prompt.split()) for prompt, _ in asked], []
        for number, (prompt, n_tokens) in enumerate(asked):
            is_wrong = number >= users if "late" in how else sizes[number] == min(sizes)
            noise = " noise" if is_wrong and how != "sound" else ""
            answers.append(" ".join(words_after(prompt + noise, None, n_tokens)))
        # While the others are answered, the first user has its answer.
        assert min(n for _, n in asked[1:]) >= 4 * asked[0][1]
        return answers

    prompt = "some words of a prompt that is long enough"
    assert _is_right_for_users(sent, together, prompt) is (how == "sound")


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_batch_may_choose_another_word_from_which_the_rest_follows(*, is_sound: bool) -> None:
    """llama-server at Q4_K_M chooses another word in four of ten answers to several users."""

    def sent(request: TimedAnswer, _temperature: float) -> SentAgain:
        words = words_after(request.prompt, request.seed, request.n_tokens)
        return SentAgain(" ".join(words), len(words), is_chat=False, first_ns=_MS, gap_ns=_MS)

    def together(asked: Sequence[tuple[str, int]], _users: int) -> list[str]:
        answers = []
        for prompt, n_tokens in asked:
            words = [*words_after(prompt, None, 4), "other"]
            basis = " ".join((prompt if is_sound else "noise", *words))
            answers.append(" ".join((*words, *words_after(basis, None, n_tokens - len(words)))))
        return answers

    assert _is_right_for_users(sent, together, "six words of a long prompt") is is_sound
