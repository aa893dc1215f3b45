"""The log-probabilities that servers list, by the forms of their requests and answers."""

from typing import Any

import pytest

from pytest_asperf.worker.served_api import Api
from tests.served import answer
from tests.serving.fake_server import FakeServer

LISTED = {"a": -0.5, "b": -1.5}
ENTRIES = [{"token": token, "logprob": value} for token, value in LISTED.items()]
#: By form: the accepted request, and the answer's log-probabilities.
FORMS: dict[str, tuple[dict[str, Any], object]] = {
    "llama-cpp-python": ({"logprobs": 20}, {"top_logprobs": [{**LISTED, "c": None}]}),
    "mlx-lm": (
        {"logprobs": True, "top_logprobs": 10},
        {"content": [{"top_logprobs": ENTRIES}]},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_likeliest_tokens_are_read_in_each_form(form: str) -> None:
    """A server rejects a request of another form."""
    accepted, shown = FORMS[form]

    def script(request: dict[str, Any]) -> Any:
        how = {key: value for key, value in request.items() if "logprobs" in key}
        if how != accepted or "stream_options" in request:
            return answer({"error": "no such field"}, "422 Unprocessable Entity")
        return answer({"choices": [{"text": "a", "logprobs": shown}]})

    server = FakeServer(script)
    api = Api(server.endpoint, "/completions", {"stream_options": {"include_usage": True}})
    assert api.listed("prompt") == LISTED
    server.close()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"choices": []},
        {"choices": {"text": "a"}},
        {"choices": [{"text": "a"}]},
        {"choices": [{"logprobs": {"top_logprobs": LISTED}}]},
        {"choices": [{"logprobs": {"content": "a", "top_logprobs": [7]}}]},
        {"choices": [{"logprobs": {"content": [{"top_logprobs": LISTED}]}}]},
        {"choices": [{"logprobs": {"content": [{"top_logprobs": 7}]}}]},
        {"choices": [{"logprobs": {"top_logprobs": [{"a": 0.5, "b": "-1"}]}}]},
    ],
)
def test_a_server_may_list_none(given: dict[str, Any]) -> None:
    """Its answer has no log-probabilities, or none in a form that is known."""
    server = FakeServer(lambda _: answer(given))
    assert Api(server.endpoint, "/completions").listed("prompt") == {}
    server.close()
