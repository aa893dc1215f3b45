"""A server that shows log-probabilities as llama-server does, of a model that is drawn."""

import itertools
import math
import re
from collections.abc import Iterator
from threading import get_ident
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.worker.sampling import MIN_P, TEMPERATURE
from tests.served import answer
from tests.serving.fake_server import FakeServer, Step, chunked, head, sse

BOS = 7
#: The character of token 0 in an answer; those of the others follow.
_FIRST = 0x4E00
#: A prompt lasts so many times as long as a token: a client needs a small share of that.
_PROMPT_STEPS = 4
#: Seconds after which a request is decoded.
_DECODES_AFTER_S = 0.03
#: Tokens that a server which forgets keeps of a longer text, and first tokens of an answer that are
#: right if its end is not.
_KEPT = 900
_RIGHT = 20


def _prompt(request: dict[str, Any]) -> str:
    """The text that a request is about; a chat's has a head."""
    if "messages" not in request:
        return str(request["prompt"])
    return "user : " + "".join(message["content"] for message in request["messages"])


def true_row(prompt: list[int], n_vocab: int) -> NDArray[np.float64]:
    """Log-probabilities that depend on the whole prompt, the likeliest token among them."""
    generator = np.random.default_rng([len(prompt), *prompt])
    logits: NDArray[np.float64] = generator.normal(size=n_vocab) * 4
    logits -= np.log(np.exp(logits).sum())
    return logits


class ProbabilityServer(FakeServer):
    """A server that shows log-probabilities as llama-server does, and does one kind of harm.

    Args:
        n_vocab: tokens of its vocabulary.
        harm: the kind.
        n_ctx: tokens of a prompt and its reply that it has room for.

    Attributes:
        step_s: seconds of a token.
    """

    step_s = 0.0

    def __init__(self, n_vocab: int = 16, harm: str = "", n_ctx: int = 4096) -> None:
        self.n_vocab, self._harm, self._n_ctx = n_vocab, harm, n_ctx
        self._n_streams = itertools.count()
        self._open: dict[int, tuple[int, float]] = {}
        super().__init__(self._reply)

    def _reply(self, request: dict[str, Any]) -> Iterator[Step]:
        slot = {"default_generation_settings": {"n_ctx": self._n_ctx}}
        documents: dict[str, Any] = {
            "/props": {"build_info": "b1", "total_slots": 4, **slot},
            "/v1/models": {"data": [{"id": "fake", "meta": {"n_vocab": self.n_vocab}}]},
        }
        if request["path"] in documents:
            yield from answer(documents[request["path"]])
        elif request.get("stream"):
            yield head()
            yield from chunked(self._streamed(_prompt(request), request))
        elif request["path"] == "/apply-template":
            yield from answer({"prompt": _prompt(request)})
        elif request["path"] == "/v1/completions":
            yield from answer({"choices": [{"text": "word"}]})
        elif "content" in request:
            yield from answer({"tokens": self._tokens(request["content"])})
        elif "prompt" not in request:
            yield from answer({"error": "not found"}, "404 Not Found")
        elif self._harm == "refuses" or self._lacks_room(request):
            yield from answer({"error": {"message": "the context is full"}}, "400 Bad Request")
        elif self._harm == "shows none":
            yield from answer({"content": "word"})
        else:
            text, steps = self._among_others(request["prompt"]), []
            for _ in range(request["n_predict"]):
                steps.append(self._step(text, request))
                text = [*text, steps[-1]["id"]]
                yield self.step_s
            del self._open[get_ident()]
            tokens = [step["id"] for step in steps][self._harm == "is short" :]
            timings = {"draft_n": 5, "draft_n_accepted": 2}
            is_whole = self._harm != "ends within a character" or len(text) % 2 == 0
            rows = steps if is_whole else []
            shown = {"completion_probabilities": rows, "tokens": tokens, "timings": timings}
            yield from answer(shown)

    def _lacks_room(self, request: dict[str, Any]) -> bool:
        n_tokens: int = len(request["prompt"]) + request["n_predict"]
        return n_tokens > self._n_ctx

    def _tokens(self, text: str) -> list[int]:
        """BOS, and a token for each ASCII word and each character of an answer."""
        parts = re.findall(r"[!-~]+|[^\x00-\x7f]", text)
        return [BOS, *((sum(map(ord, part)) - _FIRST) % self.n_vocab for part in parts)]

    def _streamed(self, prompt: str, request: dict[str, Any]) -> Iterator[Step]:
        """The events of a sampled answer."""
        tokens, n = self._tokens(prompt), request["max_tokens"]
        n_prompt = len(tokens)
        yield _PROMPT_STEPS * self.step_s
        if next(self._n_streams) % 4 == 0 and self._harm == "streams coarsely in part":
            request = {**request, "is_coarse": True}
        for number in range(n):
            is_wrong = self._harm == "ends wrongly" and number >= _RIGHT
            tokens.append(self._sampled(tokens[::-1] if is_wrong else tokens, request))
            text = chr(_FIRST + tokens[-1])
            choice = {"delta": {"content": text}} if "messages" in request else {"text": text}
            yield from sse({"choices": [choice]}, done=False)
            yield self.step_s
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n}
        end = {"text": "", "delta": {}, "finish_reason": "length"}
        yield from sse({"choices": [end], "usage": usage})

    def _sampled(self, tokens: list[int], request: dict[str, Any]) -> int:
        row = true_row(tokens, self.n_vocab)
        if request.get("is_coarse"):
            row += true_row(tokens[1:], self.n_vocab) / 4
        if self._harm == "streams the likeliest" or request.get("temperature") == 0:
            return int(row.argmax())
        if self._harm != "streams any token":
            row[row < row.max() + math.log(MIN_P)] = -np.inf
        shares = np.exp((row - row.max()) / TEMPERATURE)
        if self._harm == "streams any token":
            shares[:] = 1
        generator = np.random.default_rng([request.get("seed", 0), len(tokens)])
        return int(generator.choice(self.n_vocab, p=shares / shares.sum()))

    def _among_others(self, text: list[int]) -> list[int]:
        """A prompt as a server with a fault reads it, by the requests that are open."""
        now = monotonic()
        others = [*self._open.values()]
        self._open[get_ident()] = len(text), now
        is_late = any(now - began > _DECODES_AFTER_S for _, began in others)
        is_unlike = bool(others) and all(n != len(text) for n, _ in others)
        if {"prompts late": is_late, "mixes lengths": is_unlike}.get(self._harm):
            return [text[0], *reversed(text[1:])]
        return text

    def _step(self, text: list[int], request: dict[str, Any]) -> dict[str, Any]:
        row = true_row(text[-_KEPT:] if self._harm == "forgets" else text, self.n_vocab)
        if self._harm == "flat":
            row[:] = -math.log(self.n_vocab)
        if self._harm == "more than 1":
            row += 0.1
        biased = row.copy()
        for token, bias in request.get("logit_bias", []):
            biased[token] += 0 if self._harm == "samples" else bias
        order = np.argsort(-row)[: request.get("n_probs", 1) - (self._harm == "lists fewer")]
        listed: list[dict[str, Any]]
        listed = [{"id": int(token), "logprob": float(row[token])} for token in order]
        if self._harm == "null":
            listed[3]["logprob"] = None
        if self._harm == "more digits than a double has":
            listed[3]["logprob"] = -(10**400)
        if self._harm == "beyond":
            listed[3]["id"] = self.n_vocab
        chosen = int(biased.argmax())
        if self._harm == "drafts wrongly" and request["n_predict"] > 1:
            chosen = int(row.argmin())
        return {"id": chosen, "logprob": float(row[chosen]), "top_logprobs": listed}
