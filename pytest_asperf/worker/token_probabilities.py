"""The log-probabilities that llama-server shows of its next tokens, as rows of the vocabulary.

`/completion` lists the likeliest tokens before sampling. The chosen token is listed too, and its
log-probability is the model's for any reason of the choice: a bias, here. So the next token of a
text has its own log-probability, however unlikely it is. The unlisted probability is shared out
evenly among the unlisted tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .engine import RefusalError
from .logits import require_preference
from .posted import posted
from .serving.client import stream_request
from .serving.events import read_reply
from .serving.payload import as_dict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .serving.record import Endpoint

    Row = NDArray[np.float32]

#: Tokens that are listed, in about 0.2 MB a position: the rest has little probability.
_LISTED: Final = 2048
#: Tokens that are listed where only the likeliest and a nearly as likely one matter.
_LISTED_FOR_GAPS: Final = 64
#: Likeliest tokens after one of a text that is another.
_FEW: Final = 4
#: Tokens of a reply whose gaps show how many steps it had.
_WATCHED: Final = 16
_WATCHED_TIMES: Final = 3
#: The smallest probability in single precision.
_LEAST: Final = -103.0
#: The listed probabilities may exceed 1 by so much.
_ROUNDING: Final = 1e-3
#: A bias that no logit reaches.
_FORCED: Final = 1e9
_LARGEST_VOCABULARY: Final = 2**22
#: Nothing but the bias chooses: a server may have other samplers by default.
_GREEDY: Final[Mapping[str, Any]] = {
    "samplers": ["top_k"],
    "top_k": 1,
    "mirostat": 0,
    "ignore_eos": True,
    "post_sampling_probs": False,
    "stream": False,
}


class TokenProbabilities:
    """Requests log-probabilities from a llama-server, at its address without `/v1`."""

    def __init__(self, endpoint: Endpoint, n_vocab: object, headers: Mapping[str, str]) -> None:
        if not isinstance(n_vocab, int) or not 1 < n_vocab < _LARGEST_VOCABULARY:
            raise RefusalError("unsupported", "the server does not report its vocabulary's size")
        self._endpoint, self._n_vocab, self._headers = endpoint, n_vocab, dict(headers)
        self._bos = self.tokenize("")[:1]
        self._is_watched = False

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, with BOS where the tokenizer adds one."""
        tokens = self._post("/tokenize", {"content": text, "add_special": True}).get("tokens")
        if not isinstance(tokens, list) or not all(map(self._is_token, tokens)):
            raise RefusalError("server", "/tokenize gave no tokens of the vocabulary")
        return tokens

    def logits(self, tokens: Sequence[int], first: int) -> Row:
        """Log-probabilities after the positions `first …`; see `LoadedModel.logits`.

        The tokens up to the first position are read at once, and each further one by itself.
        """
        text = [*(self._bos or tokens[:1]), *tokens[1:]]
        rows = [
            self._next(text[: i + 1], text[i + 1 : i + 2], is_cached=i > first)
            for i in range(first, len(text))
        ]
        return np.stack(rows)

    def among_users(
        self, asked: Sequence[tuple[Sequence[int], int]], users: int
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        """The rows of prompts' likeliest continuations of a length; and the rows computed anew.

        So many users send them, each its next one when its last has ended. The second time each
        prefix is a prompt of its own, requested alone. One user's are read in one piece each; with
        several users a longer one finds the shorter one in the cache.
        """
        with ThreadPoolExecutor(users) as pool:
            answers = list(pool.map(lambda each: self._complete(*each), asked))
        alone = [
            [
                self._next([*prompt, *tokens[:n]], is_cached=n > 0 and users > 1)
                for n in range(n_new)
            ]
            for (prompt, n_new), (tokens, _) in zip(asked, answers, strict=True)
        ]
        return [rows for _, rows in answers], alone

    @contextmanager
    def conversation(self, n_ctx: int) -> Iterator[TokenProbabilities]:  # noqa: ARG002  # it has its own
        """Send requests as the server's users do: the server chooses slots and reuses caches."""
        yield self

    def reply(self, prompt: Sequence[int], n_new: int) -> tuple[list[int], list[Row]]:
        """The likeliest tokens after a prompt and their rows, with all caches that there are."""
        return self._complete(prompt, n_new, {"cache_prompt": True})

    def recompute(self, tokens: Sequence[int], positions: Sequence[int]) -> Iterator[Row]:
        """The rows of positions of a text, each requested alone and without a cache."""
        return (self._next(tokens[: position + 1]) for position in positions)

    def drafted(self, prompt: Sequence[int], n_new: int) -> dict[str, Any]:
        """The likeliest tokens after a prompt that was read before, and the time of the request.

        The server reports how many tokens it drafted by itself, and how many of them it accepted.
        All its rounds are one here. Once, the request is sent again as streams, whose gaps show
        how many steps there were: the median of each, as a busy machine adds and hides some.
        """
        asked = {"prompt": list(prompt), **_GREEDY, "cache_prompt": True, "id_slot": 0}
        self._post("/completion", {**asked, "n_predict": 1})
        began_ns = perf_counter_ns()
        answer = self._post("/completion", {**asked, "n_predict": n_new, "return_tokens": True})
        elapsed_ns = perf_counter_ns() - began_ns
        tokens, timings = answer.get("tokens"), as_dict(answer.get("timings"))
        if not isinstance(tokens, list) or not all(map(self._is_token, tokens)):
            raise RefusalError("server", "the server's reply has no tokens of the vocabulary")
        if len(tokens) != n_new:
            raise RefusalError("server", f"{n_new} tokens were requested, and {len(tokens)} came")
        counts = [timings.get(name, 0) for name in ("draft_n", "draft_n_accepted")]
        if not all(isinstance(count, int) for count in counts):
            raise RefusalError("server", "the server's counts of drafted tokens are no numbers")
        rounds, gaps = [[*counts, n_new, 0, 0, 0]], []
        if n_new >= _WATCHED and not self._is_watched:
            self._is_watched = True
            streamed = {**asked, "n_predict": n_new, "stream": True}
            replies = [self._gaps(streamed) for _ in range(_WATCHED_TIMES)]
            gaps = list(map(median, zip(*replies, strict=False)))
        return {"tokens": tokens, "elapsed_ns": elapsed_ns, "rounds": rounds, "gaps_ns": gaps}

    def _gaps(self, asked: Mapping[str, Any]) -> list[int]:
        """The times between the tokens of a streamed reply."""
        record = stream_request(self._endpoint, "/completion", asked, headers=self._headers)
        reply = read_reply(record)
        if reply.faults:
            raise RefusalError("server", reply.faults[0].text)
        return [after - before for before, after in pairwise(reply.token_ns)]

    def likeliest(
        self, prompt: Sequence[int], reply: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        """The likeliest token instead of each one of a reply, and by how many nats it is likelier.

        Each has a request of its own, so that nothing is drafted.
        """
        rows = [self._next([*prompt, *reply[:n]], is_cached=n > 0) for n in range(len(reply))]
        gaps = [float(row.max() - row[token]) for row, token in zip(rows, reply, strict=True)]
        return [int(row.argmax()) for row in rows], gaps

    def gaps(self, prompt: str, text: str, *, is_chat: bool = False) -> list[float]:
        """By how many nats each token of a text after a prompt is less likely than the likeliest.

        A request generates the likeliest tokens as far as they are those of the text; of a sampled
        text, a few at a time. The server shows none that ends within a character: such a token
        counts as the likeliest one.
        """
        if is_chat:
            messages = [{"role": "user", "content": prompt}]
            prompt = str(self._post("/apply-template", {"messages": messages}).get("prompt", ""))
        tokens, n = self.tokenize(prompt + text), len(self.tokenize(prompt))
        gaps, most = list[float](), len(tokens)
        asked = {"cache_prompt": True, "id_slot": 0}
        while n < len(tokens):
            own, rows = self._complete(
                tokens[:n], min(most, len(tokens) - n), asked, _LISTED_FOR_GAPS, needs_all=False
            )
            if not rows:
                gaps.append(0.0)
                n += 1
            for token, likeliest, row in zip(tokens[n:], own, rows, strict=False):
                gaps.append(float(row[likeliest] - row[token]))
                n += 1
                if token != likeliest:
                    most = _FEW
                    break
        return gaps

    def following(self, prompt: str, text: str) -> Iterator[tuple[int, Row]]:
        """Each token of a text after a prompt, and the row of that position.

        Positions are left out where the likeliest token ends within a character: see `gaps`.
        """
        tokens, n_prompt = self.tokenize(prompt + text), len(self.tokenize(prompt))
        n_shown = 0
        for n in range(n_prompt, len(tokens)):
            asked = {"cache_prompt": n > n_prompt, "id_slot": 0}
            _, rows = self._complete(tokens[:n], 1, asked, needs_all=False)
            for row in rows:
                n_shown += 1
                yield tokens[n], row
        n_tokens = len(tokens) - n_prompt
        if n_tokens > 0 and not n_shown:
            raise RefusalError(
                "unsupported", f"the server shows log-probabilities of 0 of {n_tokens} tokens"
            )

    def _next(
        self, prompt: Sequence[int], following: Sequence[int] = (), *, is_cached: bool = False
    ) -> Row:
        """The row after a prompt, that has the token which follows if it is named."""
        # One slot, so that a longer prefix finds the shorter one in its cache.
        bias = [[token, _FORCED] for token in following]
        asked = {"logit_bias": bias, "cache_prompt": is_cached, "id_slot": 0}
        (token,), (row,) = self._complete(prompt, 1, asked)
        if following and token != following[0]:
            raise RefusalError(
                "unsupported", f"the server chose token {token} where {following[0]} was requested"
            )
        return row

    def _complete(
        self,
        prompt: Sequence[int],
        n_new: int,
        asked: Mapping[str, Any] | None = None,
        n_listed: int = _LISTED,
        *,
        needs_all: bool = True,
    ) -> tuple[list[int], list[Row]]:
        """The tokens after a prompt and their rows; without the cache unless it is requested."""
        n_probs = min(self._n_vocab, n_listed)
        body = {"prompt": list(prompt), "n_predict": n_new, "n_probs": n_probs, **_GREEDY}
        answer = self._post("/completion", {**body, "cache_prompt": False, **(asked or {})})
        steps = answer.get("completion_probabilities")
        n = len(steps) if isinstance(steps, list) else 0
        if n > n_new or (needs_all and n < n_new):
            raise RefusalError(
                "unsupported", f"the server shows log-probabilities of {n} of {n_new} tokens"
            )
        read = [self._row(as_dict(step), n_probs) for step in steps or ()]
        return [token for token, _ in read], [row for _, row in read]

    def _row(self, step: dict[str, Any], n_probs: int) -> tuple[int, Row]:
        listed = step.get("top_logprobs")
        entries = [step, *(map(as_dict, listed) if isinstance(listed, list) else ())]
        tokens = [entry.get("id") for entry in entries]
        values = [entry.get("logprob") for entry in entries]
        is_known = all(map(self._is_token, tokens))
        if len(entries) != n_probs + 1 or not is_known:
            said = f"the server lists {len(entries) - 1} of {n_probs} tokens"
            unknown = "" if is_known else ", not all of the vocabulary"
            raise RefusalError("unsupported", f"{said}{unknown}")
        # JSON has no word for a number that is none: the server writes null.
        if not all(isinstance(value, float | int) and value < _ROUNDING for value in values):
            raise RefusalError("broken-logits", "the server lists log-probabilities that are none")
        row = np.full(self._n_vocab, np.nan, np.float32)
        row[tokens] = [max(value, _LEAST) for value in values]  # an integer may be no double
        is_listed = ~np.isnan(row)
        total = float(np.exp(row[is_listed].astype(np.float64)).sum())
        if not total < 1 + _ROUNDING:
            raise RefusalError("broken-logits", f"the listed probabilities have the sum {total:g}")
        n_left = self._n_vocab - int(is_listed.sum())
        left = max(1 - total, math.exp(_LEAST)) / max(1, n_left)
        row[~is_listed] = math.log(left)
        require_preference(row.max(keepdims=True), self._n_vocab)
        return int(tokens[0]), row

    def _is_token(self, token: object) -> bool:
        return isinstance(token, int) and 0 <= token < self._n_vocab

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return posted(self._endpoint, path, body, self._headers)
