"""The traces of timed runs in a model's memory, as rows that are short enough to be sent.

It needs no numpy, as engines without rows use it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .engine import LoadedModel, RefusalError
from .served_model import ServedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .token_probabilities import TokenProbabilities


class Revisits:
    """Examines the models that `find` gives by name."""

    def __init__(self, find: Callable[[str], LoadedModel]) -> None:
        self._find = find
        #: by the name in a worker's request
        self.operations: dict[str, Callable[..., dict[str, Any]]] = {
            "run_revisit": self._revisit,
            "run_recompute": self._recompute,
            "run_together": self._together,
            "run_turns": self._turns,
            "run_replies": self._replies,
            "run_end": self._end,
            "run_drafted": self._drafted,
            "run_likeliest": self._likeliest,
            "run_gaps": self._gaps,
            "run_listed": self._listed,
        }

    def _revisit(self, model: str, positions: list[int]) -> dict[str, Any]:
        """The traces of the last timed run; no rows if the engine does not show them."""
        left = self._find(model).left_by_run()
        if left is None:
            return {"n_held": None, "rows": {}, "chosen": {}}
        rows = {}
        for position in sorted(positions, reverse=True):
            if (row := left.row(position)) is None:
                break
            rows[str(position)] = _grouped(row)
        chosen = {str(at): token for at, token in getattr(left, "chosen", {}).items()}
        return {"n_held": left.n_held, "rows": rows, "chosen": chosen}

    def _recompute(self, model: str, tokens: list[int], positions: list[int]) -> dict[str, Any]:
        """The rows of some positions of a text, computed anew."""
        ascending = sorted(positions)
        rows = map(_grouped, self._find(model).recompute(tokens, ascending))
        return {"rows": dict(zip(map(str, ascending), rows, strict=True))}

    def _together(
        self, model: str, sequences: list[list[int]], n_decoded: list[int]
    ) -> dict[str, Any]:
        """The rows of sequences that are decoded together: of each, by position."""
        loaded = self._find(model)
        rows: list[list[list[float]]] = [[] for _ in sequences]
        for call in loaded.together(sequences, n_decoded):
            for of_one, more in zip(rows, call, strict=True):
                of_one.extend(map(_grouped, more))
        return {"rows": rows, "context": loaded.context}

    def _turns(
        self, model: str, turns: list[tuple[int, list[int]]], n_new: int, n_ctx: int
    ) -> dict[str, Any]:
        """The rows of each reply in conversations, and of equal text computed anew.

        A message has the number of its conversation, and the tokens that it adds to it.
        """
        loaded = self._find(model)
        source = loaded.probabilities if isinstance(loaded, ServedModel) else loaded
        conversations: dict[int, list[int]] = {}
        kept, texts = [], []
        with source.conversation(n_ctx) as caches:
            for number, added in turns:
                prompt = [*conversations.get(number, ()), *added]
                tokens, rows = caches.reply(prompt, n_new)
                conversations[number] = [*prompt, *tokens]
                kept.append([*map(_grouped, rows)])
                texts.append((conversations[number], len(prompt) - 1))
        context = loaded.context
        anew = [
            [*map(_grouped, source.recompute(text, range(first, first + n_new)))]
            for text, first in texts
        ]
        return {"ways": [kept, anew], "firsts": [f for _, f in texts], "context": context}

    def _replies(
        self, model: str, asked: list[tuple[list[int], int]], users: int
    ) -> dict[str, Any]:
        """The rows of replies to users' requests, and of the same tokens requested alone.

        Each prompt is cut to what a user has room for, and has a number of tokens to reply.
        """
        loaded = self._find(model)
        source = loaded.probabilities if isinstance(loaded, ServedModel) else loaded
        room = _room(loaded)
        replies = getattr(source, "among_users", None)
        if replies is None:
            raise RefusalError("unsupported", "this engine answers one user at a time here")
        fitting = [(prompt[: room - n_new], n_new) for prompt, n_new in asked]
        ways = [[[*map(_grouped, rows)] for rows in of_each] for of_each in replies(fitting, users)]
        firsts = [len(prompt) - 1 for prompt, _ in fitting]
        return {"ways": ways, "firsts": firsts, "context": loaded.context}

    def _end(self, model: str, tokens: list[int], n_last: int) -> dict[str, Any]:
        """The rows of the last positions of a text that ends as it begins, most decoded alone.

        Tokens in its middle are left out if there is no room for them.
        """
        loaded = self._find(model)
        n_left_out = max(0, len(tokens) + 1 - _room(loaded))
        middle = (len(tokens) + n_left_out) // 2
        text = [*tokens[: middle - n_left_out], *tokens[middle:]]
        first = len(text) - n_last
        text[first:] = text[1 : 1 + n_last]
        return {"first": first, "rows": [*map(_grouped, loaded.logits(text, first))]}

    def _drafted(self, model: str, prompt: list[int], n_new: int) -> dict[str, Any]:
        """A reply of a server that drafts by itself, timed, and how much of it was drafted."""
        shown, context = self._shown(model)
        return {**shown.drafted(prompt, n_new), "context": context}

    def _likeliest(self, model: str, prompt: list[int], reply: list[int]) -> dict[str, Any]:
        """The likeliest token instead of each one of a reply, and how much likelier it is."""
        shown, context = self._shown(model)
        tokens, gaps = shown.likeliest(prompt, reply)
        return {"tokens": tokens, "gaps": gaps, "context": context}

    def _gaps(self, model: str, texts: list[tuple[str, str]]) -> dict[str, Any]:
        """By how many nats each token of the answers to prompts is less likely than another."""
        loaded = self._find(model)
        shown, _ = self._shown(model)
        is_chat = isinstance(loaded, ServedModel) and loaded.is_chat
        return {"gaps": [shown.gaps(*each, is_chat=is_chat) for each in texts]}

    def _listed(self, model: str, prompts: list[str]) -> dict[str, Any]:
        """Log-probabilities of the likeliest tokens after prompts, by token; none if none shows."""
        loaded = self._find(model)
        if not isinstance(loaded, ServedModel):
            raise RefusalError("unsupported", "only a server answers requests")
        rows = list[dict[str, float]]()
        for prompt in prompts:
            rows.append(loaded.listed(prompt))
            if not rows[-1]:
                return {"rows": []}
        return {"rows": rows}

    def _shown(self, model: str) -> tuple[TokenProbabilities, dict[str, Any]]:
        """The log-probabilities of a server's model, and its context."""
        loaded = self._find(model)
        if not isinstance(loaded, ServedModel):
            raise RefusalError("unsupported", "only a server answers requests")
        return loaded.probabilities, loaded.context


def _room(loaded: LoadedModel) -> int:
    """Tokens of a user's context."""
    known = loaded.context.get("n_ctx") if isinstance(loaded, ServedModel) else None
    room: int = known or loaded.facts["n_ctx_train"]
    return room


def _grouped(row: NDArray[np.float32]) -> list[float]:
    from .logits import grouped  # noqa: PLC0415  # an engine that shows no rows needs no numpy

    return grouped(row)
