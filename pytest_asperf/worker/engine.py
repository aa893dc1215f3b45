"""The interface of an engine, its error, and the identity of its files."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray


#: Facts are JSON objects; their keys are the engine's business, the names below are shared.
Facts = dict[str, Any]
#: Groups that the probabilities of a vocabulary are added up in: a row short enough to be sent.
GROUPS: Final = 256


class RefusalError(Exception):
    """The engine cannot fulfil a request; the worker goes on. `kind` is a short stable word."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def require_settings(
    settings: Collection[str], known: Collection[str], engine: str, hint: str
) -> None:
    """Reject a setting that an engine does not have; `hint` names its setting for the KV cache."""
    if unknown := sorted(set(settings) - set(known)):
        raise RefusalError(
            "settings",
            f"{engine} has no {', '.join(unknown)}; of the engine settings it has "
            f"{', '.join(sorted(known))}; {hint}",
        )


def require_context(n_tokens: int, facts: Facts) -> None:
    """Reject more tokens than the model's training context: engines go on past it."""
    if n_tokens > facts["n_ctx_train"]:
        raise RefusalError(
            "context",
            f"{n_tokens} tokens were requested, the model was trained on {facts['n_ctx_train']}",
        )


@dataclass(frozen=True, slots=True)
class LogitRow:
    """Counts of the values in one row of logits."""

    n_vocab: int
    n_nan: int
    n_inf: int
    peak: float | None  #: the largest finite one, None without any
    is_flat: bool = False  #: all finite ones are equal, but for rounding


@dataclass(frozen=True, slots=True)
class Timing:
    """Raw counts and nanoseconds of one timed run, synchronised with the device.

    The logits are those after the last token, read when the clock had stopped. For a server it has
    each user's request, with the fields of `analysis.serving_metrics.ServedRequest`.
    """

    n_tokens: int
    elapsed_ns: int
    step_ns: tuple[int, ...]
    logits: LogitRow | None
    requests: tuple[Facts, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The work requested of a server."""

    kind: str  #: `pp`, `ttft`, `tg`, `itl` or `request`, as in the workload's name
    n_tokens: int  #: of the prompt for `pp` and `ttft`, otherwise of the counted output
    depth: int  #: tokens of the prompt, for the others
    users: int  #: number of simultaneous requests
    text: str  #: source of prompts
    warm: bool = False  #: whether each prompt is sent once before, untimed
    sampled: str = ""  #: one of the ways of `sampling`; empty for the server's own


class Stepper(Protocol):
    """A model in a context of its own that is stepped and rolled back."""

    #: the context's resolved settings; `memory` is its kind, `rollback` the way to remove rejected
    #: tokens: `trim`, or `checkpoint`, which costs time
    facts: Facts
    n_vocab: int
    n_drafted: int  #: the first tokens, which a target has too and a draft chooses from; 0 for all
    n_past: int  #: tokens in the memory
    max_outputs: int  #: positions of the largest batch that return logits

    def begin(self, tokens: Sequence[int], *, fresh: bool = False) -> None:
        """Have exactly these tokens in the memory; `fresh` forbids to keep any of it."""

    def decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        """Decode tokens in one batch, synchronised; logits of the last `n_outputs`.

        The array may be a view that the next call overwrites. Any fault of the batch, the positions
        or the logits is an error, and never silent.
        """

    def likeliest(self, tokens: list[int], n: int) -> list[int]:
        """Decode tokens, and go on with the likeliest next one until there are `n` of them.

        The last of them is not decoded. Logits that are no numbers are an error.
        """

    def mark(self) -> None:
        """Prepare for removing tokens that are decoded from now on, if that needs preparing."""

    def keep(self, n: int) -> None:
        """Remove all but the first `n` tokens, not fewer than at the mark."""

    def close(self) -> None:
        """Free the context."""


class LeftByRun(Protocol):
    """The memory of a model as its last timed run left it."""

    n_held: int | None  #: tokens in the memory by its own count; None if it has none

    def row(self, position: int) -> NDArray[np.float32] | None:
        """The logits of a position of the run; positions are requested from the highest down.

        The last position's logits are those that the run itself left. Each other token is decoded
        again, alone, after the run's state before it. None if the memory cannot drop its end.
        """


class Answers(Protocol):
    """Answers prompts, and continues from the last one's state of the caches."""

    def reply(
        self, prompt: Sequence[int], n_new: int
    ) -> tuple[list[int], list[NDArray[np.float32]]]:
        """The likeliest tokens after a prompt, and the rows that they were chosen by."""


def _unsupported(why: str) -> RefusalError:
    return RefusalError("unsupported", why)


class LoadedModel(ABC):
    """A loaded model. An engine cannot do the operations that it does not override.

    Tokens are ids of the model's own vocabulary. The next call may overwrite an array.
    """

    #: the resolved facts of the load; `bytes_per_token` if the engine knows the bytes of a step and
    #: its file is no GGUF; `loads_each_run` if each timed run has a load of its own;
    #: `log_probabilities` if `logits` returns those, cut off at a minimum; `logits_seen`, in words,
    #: if not the timed runs but other work shows that they are numbers
    facts: Facts
    context: Facts  #: the last run's resolved context (size, KV types, flash attention)
    samples: tuple[str, ...] = ()  #: those of the ways of `sampling` that timed runs can have
    #: prompt, seed, tokens and text of a server's answers to the last timed requests
    answered: Sequence[tuple[str, int, int, str]] = ()

    @abstractmethod
    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, with BOS where the tokenizer adds one."""

    @abstractmethod
    def prompt(self, tokens: Sequence[int], depth: int, n_ctx: int) -> Timing:
        """Decode `tokens[depth:]` in batches, timed, after `tokens[:depth]`, untimed.

        The context has room for `n_ctx` tokens, so that a next call can go on with more.
        """

    @abstractmethod
    def generate(self, tokens: Sequence[int], depth: int, n_ctx: int, sampled: str = "") -> Timing:
        """As `prompt`, one token at a time.

        With one of its `samples`, a token is sampled after each, timed, and not gone on with.
        """

    @abstractmethod
    def first_token(self, tokens: Sequence[int], n_ctx: int) -> Timing:
        """As `prompt` from an empty context; the likeliest next token is chosen, timed too."""

    @abstractmethod
    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Logits of positions `first …` of a fresh context, shape (n - first, n_vocab).

        The first token is replaced by BOS where the tokenizer adds one.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the model."""

    def look_ahead(self, tokens: Sequence[int], first: int) -> None:
        """Compute the next rows of `logits` while the last are read, unless the CPU would."""

    def nll(self, tokens: Sequence[int], first: int) -> list[float] | None:
        """The NLL of `tokens[first + 1:]` in nats, if the engine computes that by itself."""
        return None

    def left_by_run(self) -> LeftByRun | None:
        """The memory as the last timed run left it; the next run fills its memory anew."""
        return None

    def recompute(
        self, tokens: Sequence[int], positions: Sequence[int]
    ) -> Iterator[NDArray[np.float32]]:
        """The logits of ascending positions of a text, from a fresh memory and in large batches."""
        raise _unsupported("this engine shows no logits inside of a text")

    def together(
        self, sequences: Sequence[Sequence[int]], n_decoded: Sequence[int]
    ) -> Iterator[Sequence[NDArray[np.float32]]]:
        """The logits of sequences that are decoded together in a fresh memory.

        All but the last `n_decoded` tokens of each are one batch, and then the next token of each
        that has one. For each call and sequence, rows of the shape (positions, n_vocab).
        """
        raise _unsupported("this engine computes one sequence at a time here")

    def embed(self, texts: Sequence[str], *, together: bool) -> Iterator[list[float]]:
        """The vector of each text, computed alone or with others in one call or request.

        The tokenizer adds its own special tokens to a text. `context["pooling"]` says in words how
        the vectors of tokens become that of the text.
        """
        raise _unsupported("this engine gives no vectors of texts here")

    def conversation(self, n_ctx: int) -> AbstractContextManager[Answers]:
        """Open empty caches that reuse the beginning of a prompt, as for the engine's own users."""
        raise _unsupported("this engine keeps nothing from prompt to prompt")

    def stepper(self, n_ctx: int, max_outputs: int, rollback: str) -> Stepper:
        """Open a context for `n_ctx` tokens; an error if it cannot be rolled back as requested."""
        raise RefusalError("speculation", "this engine cannot be stepped and rolled back here")

    def speculate(self, draft: Any, prompt: str, n_new: int, k: int) -> Facts:
        """Generate `n_new` tokens greedily with a draft of k tokens a round, and count them."""
        raise _unsupported("only llama_tools has binaries that speculate")

    def serve(self, work: Asked) -> Timing:
        """Time one request of each user, all sent at once.

        The time of `ttft` is that until the first output, of `request` until the last one, each the
        mean over the users; of `pp` until every user has the first output; of `tg` and `itl` from
        the first output of any user to the last one of all.
        """
        raise _unsupported("only a server answers requests")

    def text_tokens(self, text: str) -> int | None:
        """The tokens of a text as a part of a prompt; None if the server counts none."""
        raise _unsupported("only a server answers requests")

    def answer_again(
        self, prompt: str, n_tokens: int, seed: int | None, temperature: float = 0
    ) -> Facts:
        """The answer to a request like a timed one, and its times; the likeliest without a seed.

        The temperature is the server's own unless it is given, and then there are no penalties.
        """
        raise _unsupported("only a server answers requests")

    def answers_together(self, asked: Sequence[tuple[str, int]], users: int) -> list[str]:
        """The likeliest answers to prompts, each of so many tokens.

        So many users send them at once, and each its next one when its last has ended.
        """
        raise _unsupported("only a server answers requests")

    def output(self, prompt: str, n_tokens: int) -> str:
        """The text of so many tokens after a prompt."""
        raise _unsupported("only the engine command keeps what is generated")


class Engine(Protocol):
    """An engine inside its own process."""

    def describe(self) -> Facts:
        """Library, version, build and devices.

        `cannot` names what an engine does not support, with the reason: an operation, a setting,
        `step_ns`, the `logits` of timed runs, or as `setting=value` a value that this version does
        not have.
        """

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Load a model file with the settings that were set; the rest are the engine's own."""

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Write a model's file or folder at another quantization.

        The recipe has the engine's words for it: `ftype` as in the GGUF format, or MLX's `dtype`,
        or its `bits`, `group_size` and `mode`.
        """


_MAX_HASHED_BYTES: Final = 256 * 2**20


def files_sha256(paths: Iterable[Path]) -> str:
    """One hash over names and contents of files; a very large file counts by its size."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        if path.stat().st_size <= _MAX_HASHED_BYTES:
            digest.update(path.read_bytes())
        else:
            digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()
