"""A model behind a server: requests, their times, and faults that void them.

Prompts are texts, as users send them, and no two begin alike. Output is sampled by the server's own
defaults. Tokens are counted by the server, never by the events of its stream.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, NoReturn

from .engine import Asked, Facts, LoadedModel, RefusalError, Timing
from .posted import posted
from .sampling import (
    BY_GRAMMAR,
    GRAMMAR,
    MIN_P,
    TEMPERATURE,
    TOP_K_OFF,
    TOP_P,
    Variety,
    require_grammatical,
)
from .served_prompts import Prompts, is_near, new_beginning
from .serving.events import Replies, Reply, request_facts
from .serving.load import client_cost, closed_loop
from .serving.payload import as_dict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .served_api import Api
    from .serving.record import StreamRecord
    from .token_probabilities import TokenProbabilities

    Row = NDArray[np.float32]


#: Tokens of output where only the prompt is timed: the first one's text may come with the next.
_AFTER_PROMPT: Final = 4
#: Tokens of the prompt where only the output is timed and no depth is named.
_SHORT_PROMPT: Final = 16
#: Seeds of requests are below, as all servers accept them.
_SEEDS: Final = 2**31
#: Requests for one timed reply: a model may end its text before the requested number of tokens.
_TRIES: Final = 4
#: A gap between tokens that is a smaller share of their mean is none.
_BURST_SHARE: Final = 0.1
#: Sampled tokens that show what samplers allow: the first ones of a text may be split otherwise.
_FEW_TOKENS: Final = 16
#: Further answers that show it, and their tokens: those after a new prompt are the least
#: predictable ones.
_MOST_ANSWERS, _SHORT_ANSWER = 24, 16
#: By the way of sampling: the fields of llama-server's requests.
_SAMPLING: Final[dict[str, Facts]] = {
    TOP_K_OFF: {"top_k": 0, "top_p": TOP_P, "min_p": MIN_P, "temperature": TEMPERATURE},
    BY_GRAMMAR: {"grammar": GRAMMAR},
}
#: The training context of a model whose server does not report it.
UNBOUNDED: Final = 2**31
#: Characters of a fact that are shown.
_SHOWN: Final = 200
#: Requests that no server's API supports, with the engines that do.
CANNOT_STEP: Final = {
    **dict.fromkeys(
        ("prompt", "generate", "first_token"),
        "a server accepts texts and generates by sampling: speculation step by step needs the "
        "engine llama_cpp, llama_tools or mlx",
    ),
    "step": "a server cannot be stepped and rolled back; speculation is its own, and its flags",
    "slow_by": "a server cannot be slowed by a share; the engines llama_cpp and scripted can",
    "memory": "a server keeps the caches of earlier prompts in memory, up to 8 GiB by default, and "
    "counts no allocations by purpose; the libraries of its folder are measured on llama_cpp",
}
#: For a server that shows no log-probabilities: all but llama-server.
CANNOT: Final = {
    **CANNOT_STEP,
    **dict.fromkeys(
        ("tokenize", "logits", "score"),
        "this server shows no log-probabilities of the whole vocabulary; measure quality with "
        "llama_server, llama_cpp, llama_tools or mlx",
    ),
}


class _UncountedError(RefusalError):
    """The server does not count a prompt's tokens."""

    def __init__(self) -> None:
        super().__init__("server", "the server does not report how many tokens a prompt has")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise RefusalError("unsupported", CANNOT["generate"])


class ServedModel(LoadedModel):
    """A model that a server has loaded.

    Args:
        api: the API to use.
        count: the tokens that the server makes of a prompt.
        facts: the load's resolved settings.
        context: its resolved context.
        counts_cheaply: True if counting needs no work of the model.
    """

    def __init__(
        self,
        api: Api,
        count: Callable[[str], int],
        facts: Facts,
        context: Facts,
        *,
        counts_cheaply: bool = True,
    ) -> None:
        self._api = api
        #: true if a prompt is a user's message
        self.is_chat = api.is_chat
        self._count_tokens = count
        #: log-probabilities of the likeliest tokens after a prompt, by token
        self.listed = api.listed
        self.prompts = Prompts(count, is_cheap=counts_cheaply)
        self._fixed_context = context
        self._build = ""
        self._variety = Variety()
        self._state: Facts | None = None
        self.replies = Replies()
        #: prompt, seed, tokens and text of the answers to the last timed requests
        self.answered: list[tuple[str, int, int, str]] = []
        self._asked = Asked("tg", 1, 0, 1, "")
        self.facts = facts
        self.context: Facts = dict(context)

    def serve(self, work: Asked) -> Timing:
        """Time one request of each user; see `LoadedModel.serve`."""
        why = "a server's prompt is timed from an empty context: leave out @d"
        n_prompt, n_output = sizes_of(work, _AFTER_PROMPT, why)
        cost = client_cost(work.users)
        before = self.state() if self._state is None else self._state
        answers = self._answers(work, n_prompt, n_output)
        counted = [answer.reply.counts.n_prompt for answer in answers]
        if times_prompt(work.kind) and not all(is_near(n, n_prompt) for n in counted if n):
            raise RefusalError(
                "server", f"the server counted {counted} tokens of prompts of {n_prompt}"
            )
        self._state = self.state() if before else before
        said = {"server": answers[-1].said, "drafted": answers[-1].drafted, "client": str(cost)}
        states = [before, self._state] if before else []
        self.context = {**self._fixed_context, **said, "states": states}
        return timing(work, answers, cost.lag_p50_ns)

    def embed(self, texts: Sequence[str], *, together: bool) -> Iterator[list[float]]:
        """The vectors that `/embeddings` answers with: one request for all texts, or for each."""
        api = self._api
        path = api.path.removesuffix("/completions").removesuffix("/chat") + "/embeddings"
        self.require_alive()
        for asked in [texts] if together else [[text] for text in texts]:
            body = {"model": api.model or "served", "input": list(asked)}
            answer = posted(api.endpoint, path, body, api.headers)
            rows = map(as_dict, answer.get("data") or ())
            vectors = {row.get("index"): row.get("embedding") for row in rows}
            for number in range(len(asked)):
                vector = vectors.get(number)
                if not isinstance(vector, list) or not vector:
                    raise RefusalError("server", f"{path} gave no vector of text {number}")
                yield [float(value) for value in vector]

    def state(self) -> Facts:
        """The server's constant facts about itself, and its slots.

        A key that ends in `_total` only grows.
        """
        return {}

    @property
    def is_llama_server(self) -> bool:
        """True if it is known to be a llama-server."""
        return False

    def billed(self, prompt: str) -> int:
        """The tokens of a prompt as a request for one token is billed."""
        counts = self.checked(self._api.stream(prompt, 1)).reply.counts
        if counts.n_prompt is None:
            raise _UncountedError
        return counts.n_prompt

    def _answers(self, work: Asked, n_prompt: int, n_output: int) -> list[TimedReply]:
        """The replies to simultaneous requests.

        All are sent again if one ends early, or was read at once or in bursts: a busy machine keeps
        us from reading. A server that sends bursts sends them again.
        """
        for _ in range(_TRIES):
            prompts = [self.prompts.draw(work.text, n_prompt) for _ in range(work.users)]
            seeds = [random.randrange(_SEEDS) for _ in prompts]  # noqa: S311  # sent openly
            if work.warm:
                # With other seeds: an answer may be kept, and then it is not timed.
                others = [(seed + 1) % _SEEDS for seed in seeds]
                for record in self._sent(prompts, others, n_output, work.sampled):
                    self.checked(record)
            sent = self._sent(prompts, seeds, n_output, work.sampled)
            answers = [self.checked(record) for record in sent]
            if work.sampled == BY_GRAMMAR:
                require_grammatical("".join(answer.reply.text for answer in answers))
            if work.sampled == TOP_K_OFF and self._variety.is_open():
                # One seed draws all answers by the same random numbers.
                further = (
                    (prompt, self.checked(record).reply.text)
                    for seed in random.sample(range(_SEEDS), _MOST_ANSWERS)
                    for prompt in [self.prompts.draw(work.text, _SHORT_PROMPT)]
                    for record in self._sent([prompt], [seed], _SHORT_ANSWER, work.sampled)
                )
                timed = (prompts[0], answers[0].reply.text)
                _require_sampled(self._variety, self.probabilities, chain([timed], further))
            texts = [answer.reply.text for answer in answers]
            sizes, self._asked = [n_output] * len(texts), work
            self.answered = [*zip(prompts, seeds, sizes, texts, strict=True)]
            short = [answer for answer in answers if answer.is_shorter(n_output)]
            counted = [answer.counted(n_output) for answer in answers]
            if not (short or came_at_once(work, counted) or came_in_bursts(work, counted)):
                return counted
        if not short:
            return counted
        raise RefusalError(
            "server",
            f"the server ended its reply before {n_output} tokens, {_TRIES} times: "
            f"{', '.join(map(str, short))}; request fewer tokens, or have it ignore the text's end",
        )

    def _sent(
        self, prompts: Sequence[str], seeds: Sequence[int], n_output: int, sampled: str
    ) -> list[StreamRecord]:
        self.require_alive()
        n, more = len(prompts), _sampling(sampled, is_possible=self.is_llama_server)

        def ask(i: int, now: int) -> StreamRecord:
            return self._api.stream(prompts[i], n_output, now, seed=seeds[i], **more)

        return closed_loop(ask, n, n)

    def text_tokens(self, text: str) -> int | None:
        """The tokens of a text as a part of a prompt; None if the server counts none.

        The shorter prompt comes last: see `Prompts`.
        """
        before = new_beginning(_SHORT_PROMPT)
        try:
            return self._count_tokens(before + text) - self._count_tokens(before)
        except _UncountedError:
            return None

    def answer_again(
        self, prompt: str, n_tokens: int, seed: int | None, temperature: float = 0
    ) -> Facts:
        """The answer to a request like a timed one, and its times; the likeliest without a seed."""
        how = _sampling(self._asked.sampled, is_possible=self.is_llama_server)
        if seed is not None:
            how = {**how, "seed": seed}
        if seed is None or temperature:
            how = {**how, "temperature": temperature}
            record = self._api.unpenalized(prompt, n_tokens, None, how)
        else:
            record = self._api.stream(prompt, n_tokens, **how)
        answer = self.checked(record)
        gaps, is_whole = answer.gaps_ns, answer.reply.finish == "length"
        first_ns = answer.ttft_ns if answer.reply.events else record.closed_ns - answer.start_ns
        return {
            "text": answer.reply.text,
            "n_output": n_tokens if answer.n_output is None and is_whole else answer.n_output,
            "is_chat": self.is_chat,
            "first_ns": first_ns,
            "gap_ns": fmean(gaps) if gaps else 0.0,
        }

    def answers_together(self, asked: Sequence[tuple[str, int]], users: int) -> list[str]:
        """The likeliest answers to users' prompts; see `LoadedModel.answers_together`."""
        self.require_alive()
        how = _sampling(self._asked.sampled, is_possible=self.is_llama_server)

        def ask(i: int, now: int) -> StreamRecord:
            return self._api.unpenalized(*asked[i], now, {**how, "temperature": 0})

        records = closed_loop(ask, users, len(asked))
        return [self.checked(record).reply.text for record in records]

    def checked(self, record: StreamRecord) -> TimedReply:
        """The reply, if it is whole, of the model, and of the same server as the one before."""
        reply = self.replies.read(record)
        for fault in (fault for fault in reply.faults if fault.kind != "no-output"):
            raise self.failure(f"{fault.kind}: {fault.text}")
        wanted = self._api.model
        if wanted and reply.model and not reply.model.startswith(wanted):
            raise RefusalError("server", f"{wanted} was requested and {reply.model} replied")
        if self._build and reply.build != self._build:
            raise RefusalError(
                "server", f"the server's build changed from {self._build} to {reply.build}"
            )
        self._build = reply.build
        return TimedReply(record, reply, reply.counts.n_output)

    def request(
        self, prompt: str, n_output: int, seed: int, intended_ns: int | None = None
    ) -> StreamRecord:
        """Send one request, and read its reply of any kind."""
        return self._api.stream(prompt, n_output, intended_ns, seed=seed)

    def require_alive(self) -> None:
        """Raise if the server has ended; unknown for a server of the user."""

    def failure(self, what: str) -> RefusalError:
        """The error for a reply that is none."""
        return RefusalError("server", f"{self._api.endpoint}: {what}")

    @property
    def peak_rss_bytes(self) -> int:
        """The server's peak resident memory; 0 if it is unknown."""
        return 0

    def close(self) -> None:
        """Leave the server as it is."""

    prompt = generate = first_token = _refuse

    @property
    def probabilities(self) -> TokenProbabilities:
        """The log-probabilities that it shows; an error if it is no llama-server."""
        raise RefusalError("unsupported", CANNOT["logits"])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, with BOS where the tokenizer adds one."""
        return self.probabilities.tokenize(text)

    def logits(self, tokens: Sequence[int], first: int) -> Row:
        """Log-probabilities of positions `first …` of a text."""
        return self.probabilities.logits(tokens, first)


def _require_sampled(
    variety: Variety, shown: TokenProbabilities, answers: Iterable[tuple[str, str]]
) -> None:
    """Reject sampled answers whose tokens are nearly all the likeliest, or unlikely, ones.

    A short or predictable answer shows too little, and a process may have to give only one: the
    next one is looked at until it is settled.
    """
    from .logits import is_allowed, likeliest_share  # noqa: PLC0415  # it brings numpy

    n_others = n = 0
    for prompt, text in answers:
        for token, row in shown.following(prompt, text):
            variety.add(likeliest_share(row), is_likeliest=int(row.argmax()) == token)
            n, n_others = n + 1, n_others + (not is_allowed(row, token))
            if n >= _FEW_TOKENS and not variety.is_open():
                break
        if n >= _FEW_TOKENS and not variety.is_open():
            break
    if n_others > n / 2:
        raise RefusalError(
            "sampling", f"{n_others} of {n} sampled tokens are less likely than min-p allows"
        )


def _sampling(sampled: str, *, is_possible: bool) -> Facts:
    """The fields of a request that sets how tokens are sampled."""
    if sampled and not is_possible:
        raise RefusalError(
            "unsupported", f"@{sampled} needs llama-server: this server's API cannot set it"
        )
    return _SAMPLING[sampled] if sampled else {}


def sizes_of(work: Asked, n_after_prompt: int, why_not_deep: str) -> tuple[int, int]:
    """Tokens of the prompt, and of the output: `n_after_prompt` if only the prompt is timed.

    A prompt at a depth is rejected, for that reason.
    """
    if work.kind in {"pp", "ttft"}:
        if work.depth:
            raise RefusalError("unsupported", why_not_deep)
        return work.n_tokens, n_after_prompt
    if work.kind == "request":
        return work.depth, work.n_tokens
    return work.depth or _SHORT_PROMPT, work.n_tokens + 1


def served_text(name: str, parts: Facts) -> str:
    """A server in words, and its unknown facts."""
    known = [f"{what} {_short(value)}" for what, value in parts.items() if value is not None]
    unknown = [what for what, value in parts.items() if value is None]
    not_known = [f"not known: {', '.join(unknown)}"] if unknown else []
    return "; ".join([", ".join([name, *known]), *not_known])


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:_SHOWN]


def served_facts(served: str, **known: Any) -> Facts:
    """The resolved facts of a load, 0 if a server does not report one."""
    counts = ("n_params", "size_bytes", "n_vocab", "n_layers", "layers_offloaded", "threads")
    unknown: Facts = {"n_ctx_train": UNBOUNDED, "add_bos": None, "load_ns": 1}
    return {**dict.fromkeys(counts, 0), **unknown, "served": served, **known}


def unseen_context(n_ctx: int | None, kv_type: str) -> Facts:
    """The resolved facts of a context, of a server that reports at most its length."""
    return {
        "n_ctx": n_ctx,
        "type_k": kv_type,
        "type_v": kv_type,
        "flash_attn": "unknown",
        "threads": None,
    }


@dataclass(frozen=True, slots=True)
class TimedReply:
    """A reply without faults, and the tokens of its output."""

    record: StreamRecord
    reply: Reply
    n_output: int | None

    def __str__(self) -> str:
        return f"{self.n_output} tokens and {self.reply.finish or 'no reason'}"

    def is_shorter(self, n_output: int) -> bool:
        """True if it ended before so many tokens, or shows none of them."""
        if self.n_output is None:
            return self.reply.finish != "length" or not self.reply.events
        return self.n_output < n_output or not self.reply.events

    def counted(self, n_output: int) -> TimedReply:
        """With the requested tokens, if the server reports that it stopped there."""
        return replace(self, n_output=n_output if self.n_output is None else self.n_output)

    @property
    def start_ns(self) -> int:
        """When it was sent."""
        sent_ns = self.record.sent_ns
        return self.record.intended_ns if sent_ns is None else sent_ns

    @property
    def ttft_ns(self) -> int:
        """From the request to the first output."""
        return self.reply.token_ns[0] - self.start_ns

    @property
    def gaps_ns(self) -> tuple[int, ...]:
        """The times between events with output."""
        return tuple(after - before for before, after in pairwise(self.reply.token_ns))

    @property
    def n_of_first(self) -> int:
        """Tokens of the first event with output; 1 if it has no count."""
        return max(1, self.reply.events[0].n_tokens_so_far or 1)

    @property
    def facts(self) -> Facts:
        """The fields of `analysis.serving_metrics.ServedRequest`."""
        return {**request_facts(self.record, self.reply), "n_output": self.n_output}

    @property
    def drafted(self) -> str | None:
        """The server's drafting for this reply, in words; None if it does not speculate."""
        n, accepted = (self.reply.timings.get(key, 0) for key in ("draft_n", "draft_n_accepted"))
        return f"{accepted:g} of {n:g} drafted tokens accepted" if n else None

    @property
    def said(self) -> Facts:
        """The server's report about itself and its own times."""
        reply = self.reply
        names = {"build": reply.build or None, "model": reply.model or None}
        return {**names, "timings": reply.timings, **asdict(reply.counts)}


def times_prompt(kind: str) -> bool:
    """True if a prompt is timed; otherwise only the generation after it."""
    return kind in {"pp", "ttft", "request"}


def timing(work: Asked, answers: Sequence[TimedReply], lag_ns: int) -> Timing:
    """The time of all users' requests together; see `LoadedModel.serve`.

    The lag is that of our own stamps.
    """
    elapsed_ns, steps_ns = _TIMED[work.kind](work, answers)
    requests = tuple({**answer.facts, "lag_ns": lag_ns} for answer in answers)
    return Timing(work.n_tokens * len(answers), elapsed_ns, steps_ns, None, requests)


def _prompt(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """Until every user has the first output."""
    began_ns = min(answer.start_ns for answer in answers)
    return max(answer.reply.token_ns[0] for answer in answers) - began_ns, ()


def _first_token(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """The mean time until the first output."""
    elapsed_ns = round(fmean(answer.ttft_ns for answer in answers))
    return elapsed_ns, (elapsed_ns,)


def _whole(_work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """The mean time of a request, and the mean time until its first output."""
    elapsed_ns = round(fmean(answer.reply.token_ns[-1] - answer.start_ns for answer in answers))
    first_ns, _ = _first_token(_work, answers)
    return elapsed_ns, (first_ns, *_gaps_of_one(answers))


def _generation(work: Asked, answers: Sequence[TimedReply]) -> tuple[int, tuple[int, ...]]:
    """From the first output of any user to the last of all, over the requested tokens.

    One more was generated, as the first one ends the prompt; with some servers the first event has
    several.
    """
    if came_at_once(work, answers):
        raise RefusalError("server", f"all {work.n_tokens + 1} tokens came at once")
    return _span_ns(answers) * work.n_tokens // _n_timed(work, answers), _gaps_of_one(answers)


def came_at_once(work: Asked, answers: Sequence[TimedReply]) -> bool:
    """True if a generation has no time, as all of its tokens were read together."""
    return not times_prompt(work.kind) and (_n_timed(work, answers) < 1 or _span_ns(answers) <= 0)


def came_in_bursts(work: Asked, answers: Sequence[TimedReply]) -> bool:
    """True if gaps are timed, and half of a reply's chunks came with the one before.

    See the guard tokens-per-chunk.
    """
    return work.kind == "itl" and any(
        len(answer.gaps_ns) > 1 and median(answer.gaps_ns) < _BURST_SHARE * fmean(answer.gaps_ns)
        for answer in answers
    )


def _n_timed(work: Asked, answers: Sequence[TimedReply]) -> int:
    return work.n_tokens + 1 - max(answer.n_of_first for answer in answers)


def _span_ns(answers: Sequence[TimedReply]) -> int:
    first_ns = min(answer.reply.token_ns[0] for answer in answers)
    return max(answer.reply.token_ns[-1] for answer in answers) - first_ns


def _gaps_of_one(answers: Sequence[TimedReply]) -> tuple[int, ...]:
    return answers[0].gaps_ns if len(answers) == 1 else ()


_TIMED = {
    "pp": _prompt,
    "ttft": _first_token,
    "request": _whole,
    "tg": _generation,
    "itl": _generation,
}
