"""The log-probabilities of a llama-server as rows, and the faults that void them."""

import numpy as np
import pytest

from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.token_probabilities import TokenProbabilities
from tests.probability_server import BOS, ProbabilityServer, true_row
from tests.serving.fake_server import FakeServer


def shown_by(server: FakeServer, n_vocab: int = 16) -> TokenProbabilities:
    """The probabilities of a server."""
    return TokenProbabilities(server.endpoint, n_vocab, {})


def test_rows_are_those_of_each_prefix() -> None:
    """Each position has the row after all tokens before it, the first of which is BOS."""
    tokens = [3, 1, 4, 1, 5]
    rows = shown_by(ProbabilityServer()).logits(tokens, 2)
    for row, n in zip(rows, (3, 4, 5), strict=True):
        np.testing.assert_allclose(row, true_row([BOS, *tokens[1:n]], 16), atol=1e-5)


def test_the_next_token_has_its_own_probability_though_it_is_not_listed() -> None:
    """In a vocabulary larger than the list, the rest shares the remainder."""
    n_vocab, prompt = 4000, [BOS, 1, 2]
    row = true_row(prompt, n_vocab)
    unlikely = int(row.argmin())
    (shown, _) = shown_by(ProbabilityServer(n_vocab), n_vocab).logits([*prompt, unlikely], 2)
    assert shown[unlikely] == pytest.approx(row[unlikely], abs=1e-4)
    assert np.exp(shown.astype(float)).sum() == pytest.approx(1, abs=1e-4)
    listed = np.argsort(-row)[:2048]
    np.testing.assert_allclose(shown[listed], row[listed], atol=1e-4)


@pytest.mark.parametrize(
    ("prompts", "cached"),
    [([[BOS, 1]], [False, False, False]), ([[BOS, 1], [BOS, 2]], 2 * [False, True, True])],
)
def test_replies_are_asked_for_again_one_by_one(
    prompts: list[list[int]], cached: list[bool]
) -> None:
    """The second time each prefix of a reply is a prompt of its own, never cached of one."""
    server = ProbabilityServer()
    among, alone = shown_by(server).among_users([(prompt, 3) for prompt in prompts], len(prompts))
    np.testing.assert_array_equal(among, alone)
    n = len(prompts)
    (together, single) = server.requests[1 : n + 1], server.requests[n + 1 :]
    assert {request["n_predict"] for request in together} == {3}
    assert [len(request["prompt"]) for request in single] == n * [2, 3, 4]
    assert not any(request["cache_prompt"] for request in together)
    assert [request["cache_prompt"] for request in single] == cached


def test_a_turn_may_use_every_cache_and_its_text_anew_none() -> None:
    """The server is free to choose the slot of a message, as for its users."""
    server = ProbabilityServer()
    shown = shown_by(server)
    with shown.conversation(8) as conversation:
        tokens, rows = conversation.reply([BOS, 1], 3)
    anew = shown.recompute([BOS, 1, *tokens], range(1, 4))
    np.testing.assert_array_equal(rows, list(anew))
    turn, *single = server.requests[1:]
    assert turn["cache_prompt"]
    assert "id_slot" not in turn
    assert [len(request["prompt"]) for request in single] == [2, 3, 4]
    assert not any(request["cache_prompt"] for request in single)


def test_a_reply_says_how_much_of_it_was_drafted() -> None:
    """The prompt is read before the clock starts, and tokens are the likeliest ones."""
    server = ProbabilityServer()
    shown = shown_by(server)
    reply = shown.drafted([BOS, 1], 4)
    assert reply["rounds"] == [[5, 2, 4, 0, 0, 0]]
    assert reply["elapsed_ns"] > 0
    assert [request["n_predict"] for request in server.requests[1:]] == [1, 4]
    assert shown.likeliest([BOS, 1], reply["tokens"]) == (reply["tokens"], [0.0] * 4)


def test_a_gap_is_the_median_of_several_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, one reply of a sound llama-server had gaps within its steps."""
    shown, gaps = shown_by(ProbabilityServer()), iter([[5, 1, 0], [5, 9, 3], [9, 1, 3]])
    monkeypatch.setattr(shown, "_gaps", lambda _asked: next(gaps))
    assert shown.drafted([BOS, 1], 16)["gaps_ns"] == [5, 1, 3]


def test_a_drafted_token_that_is_not_the_likeliest_has_a_gap() -> None:
    """The gap is in nats, and the token in its place is the likeliest after the same text."""
    shown = shown_by(ProbabilityServer(harm="drafts wrongly"))
    reply = shown.drafted([BOS, 1], 2)["tokens"]
    tokens, gaps = shown.likeliest([BOS, 1], reply)
    row = true_row([BOS, 1], 16)
    assert [tokens[0], reply[0]] == [int(row.argmax()), int(row.argmin())]
    assert gaps[0] == pytest.approx(row.max() - row.min(), abs=1e-4)


def test_a_token_of_a_text_has_a_gap_if_another_one_is_likelier() -> None:
    """Likeliest tokens in succession need one request, and each other token one more."""
    server = ProbabilityServer()
    shown, prompt = shown_by(server), "a prompt"
    tokens, gaps = shown.tokenize(prompt), [0.0] * 3
    n_prompt = len(tokens)
    for number in range(3):
        order = true_row(tokens, 16).argsort()
        tokens.append(int(order[-1 - (number == 1)]))
        gaps[number] = float(
            true_row(tokens[:-1], 16).max() - true_row(tokens[:-1], 16)[tokens[-1]]
        )
    text = "".join(chr(0x4E00 + token) for token in tokens[n_prompt:])
    n_before = len(server.requests)
    assert shown.gaps(prompt, text) == pytest.approx(gaps, abs=1e-4)
    assert gaps[1] > 0
    assert [request.get("n_predict") for request in server.requests[n_before:]] == [
        None,
        None,
        3,
        1,
    ]


def test_the_answer_of_a_chat_follows_its_template() -> None:
    """The message alone is another prompt."""
    server = ProbabilityServer()
    shown, message = shown_by(server), "a prompt"
    token = int(true_row(shown.tokenize(f"user : {message}"), 16).argmax())
    text = chr(0x4E00 + token)
    assert shown.gaps(message, text, is_chat=True) == [0.0]
    assert shown.gaps(message, text) != [0.0]


def test_tokens_of_a_text_are_followed_where_rows_are_shown() -> None:
    """The server shows no row if its own token ends within a character, or none at all."""
    text = "".join(chr(0x4E00 + token) for token in range(4))
    for harm, n_shown in (("", 4), ("ends within a character", 2)):
        shown = shown_by(ProbabilityServer(harm=harm))
        found = [*shown.following("a prompt", text)]
        assert len(found) == n_shown
        assert {token for token, _ in found} <= {0, 1, 2, 3}
    with pytest.raises(RefusalError, match="of 0 of 4 tokens"):
        [*shown_by(ProbabilityServer(harm="shows none")).following("a prompt", text)]


def test_a_reply_that_is_too_short_is_refused() -> None:
    """A reply of fewer tokens than requested is faster."""
    shown = shown_by(ProbabilityServer(harm="is short"))
    with pytest.raises(RefusalError, match="4 tokens were requested, and 3 came"):
        shown.drafted([BOS, 1], 4)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("refuses", "HTTP 400: 'the context is full'"),
        ("shows none", "log-probabilities of 0 of 1 tokens"),
        ("lists fewer", "lists 15 of 16 tokens"),
        ("beyond", "lists 16 of 16 tokens, not all of the vocabulary"),
        ("samples", "chose token"),
        ("null", "log-probabilities that are none"),
        ("more than 1", "have the sum 1.1"),
        ("flat", "all 16 logits of a row are equal"),
    ],
)
def test_what_is_no_distribution_is_refused(harm: str, says: str) -> None:
    """An error names the missing part of the server's output, or the wrong one."""
    probabilities = shown_by(ProbabilityServer(harm=harm))
    least = int(true_row([BOS, 1], 16).argmin())
    with pytest.raises(RefusalError, match=says):
        probabilities.logits([BOS, 1, least], 1)


def test_a_probability_of_none_may_have_any_digits() -> None:
    """It was an OverflowError of ours."""
    shown = shown_by(ProbabilityServer(harm="more digits than a double has"))
    (row,) = shown.logits([BOS, 1], 1)
    assert row.min() == -103


def test_a_vocabulary_of_unknown_size_is_refused() -> None:
    """Without its size there is no row."""
    with pytest.raises(RefusalError, match="vocabulary's size"):
        shown_by(ProbabilityServer(), n_vocab=0)
