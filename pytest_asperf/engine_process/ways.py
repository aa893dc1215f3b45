"""The same texts computed in two ways in one worker: alone, and with others or after others."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pytest_asperf.engine_process.facts import ContextFacts, present
from pytest_asperf.engine_process.worker import GroupedRow, Worker, grouped_row

Sequences: TypeAlias = tuple[tuple[GroupedRow, ...], ...]
Vectors: TypeAlias = tuple[tuple[float, ...], ...]
#: Tokens at the end of a text that repeats its beginning.
REPEATED: Final = 32


def decoded_together(
    worker: Worker, name: str, sequences: Sequence[Sequence[int]], n_decoded: Sequence[int]
) -> tuple[Sequences, ContextFacts]:
    """The logits of each position of sequences that are decoded together, and the context.

    All but the last `n_decoded` tokens of each are one batch, and then one token of each that has
    one. An EngineRefusedError means that the engine computes one sequence at a time.
    """
    texts, lengths = [list(sequence) for sequence in sequences], [*map(len, sequences)]

    def parse(answer: Mapping[str, Any]) -> tuple[Sequences, ContextFacts]:
        return _rows(answer["rows"], lengths), ContextFacts.parse(present(answer, "context"))

    asked = {"model": name, "sequences": texts, "n_decoded": list(n_decoded)}
    return worker.asked("run_together", parse, **asked)


def replied_together(
    worker: Worker, name: str, requests: Sequence[tuple[Sequence[int], int]], users: int
) -> tuple[Sequences, Sequences, tuple[int, ...], ContextFacts]:
    """The logits of replies to prompts, each of its number of tokens.

    So many users send them at once, and each its next one when its last has ended. Then the logits
    of the same tokens, each computed alone after all tokens before it; the first position of each
    reply; and the context. An EngineRefusedError means that the engine has no such requests, or
    shows no logits of them.
    """
    asked = [(list(prompt), n_new) for prompt, n_new in requests]
    parse = partial(_both_ways, lengths=[n_new for _, n_new in asked])
    return worker.asked("run_replies", parse, model=name, asked=asked, users=users)


def replied_in_turn(
    worker: Worker, name: str, turns: Sequence[tuple[int, Sequence[int]]], n_new: int, n_ctx: int
) -> tuple[Sequences, Sequences, tuple[int, ...], ContextFacts]:
    """The logits of replies of `n_new` tokens, each after the cache that earlier messages left.

    Then the logits of the same texts computed anew; the first position of each reply; the context.
    Each of `turns` has its conversation's number, and the tokens that it adds; the caches have room
    for `n_ctx`. An EngineRefusedError means that the engine keeps nothing from prompt to prompt.
    """
    messages = [(number, list(added)) for number, added in turns]
    parse = partial(_both_ways, lengths=[n_new] * len(turns))
    asked = {"model": name, "turns": messages, "n_new": n_new, "n_ctx": n_ctx}
    return worker.asked("run_turns", parse, **asked)


def end_of(worker: Worker, name: str, tokens: Sequence[int]) -> Mapping[int, GroupedRow]:
    """The logits of the last positions of a text, by position.

    Its last tokens are replaced by its first ones, which a model that has these expects. The text
    lacks tokens in its middle if there is no room for it.
    """

    def parse(answer: Mapping[str, Any]) -> Mapping[int, GroupedRow]:
        return dict(enumerate(map(grouped_row, answer["rows"]), int(answer["first"])))

    return worker.asked("run_end", parse, model=name, tokens=list(tokens), n_last=REPEATED)


def listed_after(
    worker: Worker, name: str, prompts: Sequence[str]
) -> tuple[Mapping[str, float], ...]:
    """A server's log-probabilities of the likeliest tokens after prompts, by token.

    Empty if it shows none of a prompt.
    """

    def parse(answer: Mapping[str, Any]) -> tuple[Mapping[str, float], ...]:
        return tuple(
            {str(token): float(value) for token, value in row.items()} for row in answer["rows"]
        )

    return worker.asked("run_listed", parse, model=name, prompts=list(prompts))


def _both_ways(
    answer: Mapping[str, Any], lengths: Sequence[int]
) -> tuple[Sequences, Sequences, tuple[int, ...], ContextFacts]:
    one, other = (_rows(rows, lengths) for rows in answer["ways"])
    firsts = tuple(int(first) for first in answer["firsts"])
    return one, other, firsts, ContextFacts.parse(present(answer, "context"))


def _rows(rows: Sequence[Any], lengths: Sequence[int]) -> Sequences:
    if [*map(len, rows)] != lengths:
        raise ValueError(f"the sequences have {[*map(len, rows)]} rows instead of {lengths}")
    return tuple(tuple(map(grouped_row, of_one)) for of_one in rows)


def embedded(
    worker: Worker, name: str, texts: Sequence[str], *, together: bool
) -> tuple[Vectors, ContextFacts]:
    """The vector of each text, computed alone or with others in one call; and the context.

    An EngineRefusedError means that there are none, or that they do not depend on the texts.
    """

    def parse(answer: Mapping[str, Any]) -> tuple[Vectors, ContextFacts]:
        vectors = tuple(tuple(map(float, vector)) for vector in answer["vectors"])
        if len(vectors) != len(texts) or len(set(map(len, vectors))) != 1:
            raise ValueError(f"{len(vectors)} vectors of {len(texts)} texts, or of other sizes")
        return vectors, ContextFacts.parse(present(answer, "context"))

    return worker.asked("embed", parse, model=name, texts=list(texts), together=together)
