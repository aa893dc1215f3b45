"""The same tokens computed in two ways under each build, which must give the same logits.

Prefill against decoding: the tokens in one batch, and one at a time. Or several users: each one's
tokens alone, and in the same calls as those of the other users. Or a conversation: each reply after
the caches that earlier prompts left, and computed anew.

A server that loses the beginning of a long text loses it in both ways. So the end of such a text is
compared with the baseline's, too.

Batches and single tokens go through different kernels. A build with a corrupt prefill decodes as
fast and as well as ever once the cache is filled, and one with corrupt decoding has the PPL of its
prefill: only their comparison shows the fault. A build that computes only the first sequence of a
batch is right for single sequences, and one that keeps too much of an earlier prompt is right for
the first prompt.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from math import exp
from operator import mul
from statistics import fmean
from typing import Final

from pytest_asperf.analysis.guards import kld, klds
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import GroupedRow
from pytest_asperf.engine_process.ways import (
    decoded_together,
    end_of,
    replied_in_turn,
    replied_together,
)
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.experiment import Arm, MachineLease
from pytest_asperf.measure.feeding import workload_tokens
from pytest_asperf.measure.ladder import PPL_N_CTX
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import MODEL, RunningArm, ask_anew

#: The name of the second load of the model, which gets one token at a time.
_SINGLY: Final = "singly"
#: Tokens compared: one of llama.cpp's physical batches, and nearly a half that follows it. No size
#: here is a multiple of what a kernel computes at once, whose last tokens have code of their own.
_TOKENS: Final = 761
#: Tokens compared after a depth.
_DEEP_TOKENS: Final = 61
#: Tokens of each sequence that is computed with others: prompts of several lengths, in rotation, so
#: short that four of them are one physical batch, and at most so many that are decoded one call
#: after the other. One sequence after the other ends, so that each smaller number is decoded too.
_PROMPTS_TOGETHER: Final = (317, 31, 97, 62)
_DECODED_TOGETHER: Final = 16
#: Engines whose batches are of requests, as a server's, and not of sequences.
_BATCHES_REQUESTS: Final = frozenset({"mlx"})
#: Positions of a user, or of a reply, whose mean is judged: that of a few is one position's. Each
#: reply of a conversation is judged, as a cache that is wrong after some prompts is right before.
_LEAST_JUDGED: Final = 16
#: For a reply: each token is requested again with all tokens before it. The first of
#: several users has a short one, so that it sends its next prompt while the others' tokens are
#: decoded; and each user's second reply is short. In batches, the last two users of four are left
#: together for 20 tokens.
_REPLIED: Final = 24
_FIRST_REPLIED: Final = 2
_NEXT_REPLIED: Final = 6
_LAST_REPLIED: Final = (30, 24)
#: For a single user: tokens of a text whose end repeats its beginning.
_LONG: Final = 1024
#: For a conversation: tokens of the piece that all begin with, as with instructions; tokens
#: that another piece adds; and tokens of each reply.
_SHARED: Final = 155
_ADDED: Final = 29
_ANSWERED: Final = 6
#: Messages: the conversation's number, and the pieces of text that it adds. All conversations begin
#: with the same piece. The first one goes on, pauses for another, resumes, and is started once
#: more; then its reply is requested again, for which a cache drops the reply alone.
_TURNS: Final = ((0, (0, 1)), (0, (2,)), (1, (0, 3)), (0, (4,)), (2, (0, 1)), (3, (0, 1)))
#: Pieces, and replies, of the longest conversation.
_LONGEST: Final = (4, 3)
#: Settings under which an engine computes a text one token at a time.
_ONE_AT_A_TIME: Final[Mapping[Engine, EngineSettings]] = {
    "llama_cpp": EngineSettings(n_ubatch=1),
    "llama_tools": EngineSettings(n_ubatch=1),
    "mlx": EngineSettings(n_batch=1),
    "scripted": EngineSettings(n_ubatch=1),
}
#: Engines that score the second half of a text alone.
_SCORING_HALVES: Final = frozenset({"llama_tools"})


@dataclass(frozen=True)
class Drift:
    """How far a build's logits of tokens are from those of the same tokens computed otherwise."""

    #: of each position's distribution in the batch from that after single tokens, of each user's
    #: positions from those of the same user alone, or of those in a conversation from those
    #: computed anew, nats
    kld: tuple[float, ...]
    #: whether both have the same likeliest token, or group of tokens, at each position
    same_tops: tuple[bool, ...]
    ran: Provenance  #: the run record
    first: int = 0  #: the first position
    users: int = 1  #: whose positions follow one another; 1 for a single user
    lengths: tuple[int, ...] = ()  #: positions of each user or reply; empty if all have as many
    firsts: tuple[int, ...] = ()  #: the first position of each reply, in order; empty of others
    are_turns: bool = False  #: True if the replies are those of conversations
    #: of each position's log-probabilities, by their probability: their variance, and their
    #: covariance with those of the other way; empty if they were not compared here
    spreads: tuple[tuple[float, float], ...] = ()
    #: the logits of each position at the end of a server's long text; empty of others
    end: Mapping[int, GroupedRow] = field(default_factory=dict)

    @cached_property
    def mean_kld(self) -> float:
        """Mean KLD of a position, nats."""
        return sum(self.kld) / len(self.kld)

    @property
    def largest_kld(self) -> float:
        """KLD of the position where it is largest, nats."""
        return max(self.kld)

    @property
    def mean_kld_of_one(self) -> float | None:
        """Mean KLD of the user, or reply, that has the largest, nats; None if all are short.

        A fault of one among several is small in the mean of all.
        """
        means = [fmean(self.kld[at] for at in group) for group in self._judged]
        return max(means) if len(means) > 1 else None

    @property
    def scale_error(self) -> float | None:
        """Largest difference of a user's logits from those of the other way in scale, as a share.

        1.25 times as large logits have 0.25. They have a lower temperature's samples, and a small
        KLD if the text is predictable. None for a single user.
        """
        if self.users == 1 or not self.spreads:
            return None
        sums = [
            [sum(self.spreads[at][i] for at in group) for i in (0, 1)] for group in self._judged
        ]
        return max((abs(both / own - 1) for own, both in sums if own), default=None)

    @property
    def _judged(self) -> list[list[int]]:
        """Positions of each user or reply, by index; those of all short ones are a single group."""
        ends = accumulate(self._lengths)
        groups: list[list[int]] = []
        short: list[int] = []
        for n, end in zip(self._lengths, ends, strict=True):
            if n >= _LEAST_JUDGED or self.are_turns:
                groups.append([*range(end - n, end)])
            else:
                short += range(end - n, end)
        return [*groups, short] if len(short) >= _LEAST_JUDGED else groups

    @property
    def _lengths(self) -> tuple[int, ...]:
        """The number of positions of each user or reply."""
        n = len(self.firsts) or self.users
        return self.lengths or (len(self.kld) // n,) * n

    @property
    def place(self) -> str:
        """The position where it is largest, in words."""
        firsts, lengths = self.firsts or (self.first,) * self.users, self._lengths
        index, number = self.kld.index(self.largest_kld), 0
        while index >= lengths[number]:
            index -= lengths[number]
            number += 1
        group = "turn" if self.are_turns else "reply" if self.firsts else "user"
        of_group = f" of {group} {number + 1}" if len(firsts) > 1 else ""
        return f"position {firsts[number] + index} of {firsts[number] + lengths[number]}{of_group}"

    @property
    def same_top(self) -> float:
        """Share of positions with the same likeliest token."""
        return sum(self.same_tops) / len(self.same_tops)


@dataclass(frozen=True, slots=True)
class LogitsComparison:
    """Both builds' logits: prefill or decoding, users together or alone, replies anew or not."""

    drifts: tuple[Drift, Drift]  #: of baseline and candidate
    elapsed_s: float  #: its duration, loads included

    @property
    def ran(self) -> tuple[Provenance, Provenance]:
        """Run record of each build, baseline first."""
        base, candidate = self.drifts
        return base.ran, candidate.ran

    @property
    def unlike_baseline(self) -> float | None:
        """Mean KLD of the candidate from the baseline at the end of a long text, nats.

        None if there is no such text, or one server has no room for the other's.
        """
        base, candidate = (drift.end for drift in self.drifts)
        is_one = base.keys() == candidate.keys()
        return fmean(klds(base, candidate).values()) if base and is_one else None


@dataclass(frozen=True, slots=True)
class LogitsExperiment:
    """Scores the same tokens in two ways, such as one batch and one at a time, in both builds.

    Without a depth the model is loaded twice in one process, which costs its memory twice where an
    engine does not share weights of one file.
    """

    depth: int = 0  #: tokens before those that are compared, decoded in batches; 0 for none
    #: sequences that are computed together, and each alone; 1 for prefill against decoding
    users: int = 1
    turns: bool = False  #: True computes conversations, and each reply anew

    def run(self, lease: MachineLease) -> LogitsComparison:
        """Score."""
        began = time.monotonic()
        lease.progress("logits", 0, 1)
        arms = [arm for (arm,) in lease.sides]
        base, candidate = ask_anew(arms, lease, partial(self.drift_of, lease=lease))
        return LogitsComparison((base, candidate), time.monotonic() - began)

    def attempt(self, lease: MachineLease) -> None:
        """Score in the lease's only variant."""
        ((arm,),) = lease.sides
        self.drift(arm, lease)

    def drift(self, arm: Arm, lease: MachineLease) -> Drift:
        """Score in one variant."""
        with RunningArm(arm, lease) as running:
            return self.drift_of(running, lease)

    def drift_of(self, running: RunningArm, lease: MachineLease) -> Drift:
        """Score in a variant that runs."""
        if self.turns:
            return _drift_of_turns(running, lease)
        is_batch = self.users > 1 and running.worker.build.engine in _BATCHES_REQUESTS
        if running.loaded.served is not None or is_batch:
            return _drift_of_replies(running, lease, self.depth, self.users)
        if self.users > 1:
            return _drift_of_users(running, lease, self.users)
        if self.depth:
            return _deep_drift(running, lease, self.depth)
        return _drift(running, lease)


@dataclass(frozen=True, slots=True)
class DriftExperiment:
    """Scores the same tokens in two ways with one model."""

    ways: LogitsExperiment  #: the ways, as of two builds

    def run(self, lease: MachineLease) -> Drift:
        """Score."""
        ((arm,),) = lease.sides
        return self.ways.drift(arm, lease)


def _drift(running: RunningArm, lease: MachineLease) -> Drift:
    worker, arm = running.worker, running.arm
    settings = arm.settings.merged(_ONE_AT_A_TIME.get(arm.build.engine.engine, EngineSettings()))
    wanted = Workload("pp", min(_TOKENS, running.loaded.n_ctx_train))
    tokens = workload_tokens(worker, MODEL, lease.corpus, wanted)
    worker.load(_SINGLY, arm.model.path, settings)
    first = len(tokens) // 2 if arm.build.engine.engine in _SCORING_HALVES else 0
    batched, context = worker.score([_SINGLY, MODEL], tokens, first)[MODEL]
    return Drift(batched.kld, batched.same_top, running.ran(context), first)


def _deep_drift(running: RunningArm, lease: MachineLease, depth: int) -> Drift:
    """Compare tokens that are decoded one at a time after a depth with one batch of all of them."""
    worker, wanted = running.worker, Workload("tg", _DEEP_TOKENS, depth)
    if wanted.n_ctx > running.loaded.n_ctx_train:
        raise UnfitError(
            f"logits@d{depth} needs {wanted.n_ctx} tokens of context, and the model was trained on "
            f"{running.loaded.n_ctx_train}",
            why=f"{_DEEP_TOKENS} tokens are compared after {depth}",
            remedy="name a smaller depth",
        )
    tokens = workload_tokens(worker, MODEL, lease.corpus, wanted)
    run = worker.generate(MODEL, tokens, depth)
    singly = worker.revisit(MODEL, range(depth, wanted.n_ctx)).rows
    if not singly:
        raise UnfitError(
            f"{worker.build.engine} shows no logits inside of a run",
            why="tokens after a depth are compared one by one",
            remedy="check logits without a depth, or with the engines llama_cpp and mlx",
        )
    computed = worker.recompute(MODEL, tokens, list(singly))
    rows = [(singly[position], computed[position]) for position in sorted(singly)]
    return _drift_of_rows(rows, running.ran(run.context), first=min(singly))


def _drift_of_users(running: RunningArm, lease: MachineLease, users: int) -> Drift:
    """Compare each user's logits among those of others with the same user's alone."""
    worker, room = running.worker, running.loaded.n_ctx_train
    prompts = _PROMPTS_TOGETHER
    most = min(_DECODED_TOGETHER, room // 2)
    # Those who stay are not the first ones.
    leaving = [*range(1, users, 2), *range(0, users, 2)[::-1]]
    n_decoded = [-(-most * (leaving.index(user) + 1) // users) for user in range(users)]
    sizes = [min(prompts[user % len(prompts)], room - most) + n for user, n in enumerate(n_decoded)]
    longest = max(sizes)
    tokens = workload_tokens(worker, MODEL, lease.corpus, Workload("pp", users * longest))
    starts = _beginning_alike(tokens, longest)
    sequences = [start[:size] for start, size in zip(starts, sizes, strict=True)]
    among, context = decoded_together(worker, MODEL, sequences, n_decoded)
    alone = [
        decoded_together(worker, MODEL, [sequence], [n])[0][0]
        for sequence, n in zip(sequences, n_decoded, strict=True)
    ]
    pairs = zip(alone, among, strict=True)
    rows = [pair for of_each in pairs for pair in zip(*of_each, strict=True)]
    drift = _drift_of_rows(rows, running.ran(context), users=users)
    return replace(drift, lengths=tuple(sizes))


def _drift_of_replies(running: RunningArm, lease: MachineLease, depth: int, users: int) -> Drift:
    """Compare replies with the same tokens requested one by one, or computed alone.

    Several users have prompts of several lengths, two each.
    """
    sizes, replied = [depth or PPL_N_CTX // 2], [_REPLIED]
    if users > 1:
        sizes = [_PROMPTS_TOGETHER[n % len(_PROMPTS_TOGETHER)] for n in range(2 * users)]
        replied = [_FIRST_REPLIED, *(users - 1) * [_REPLIED], *users * [_NEXT_REPLIED]]
        if running.loaded.served is None:
            replied[-2:] = _LAST_REPLIED
    step = max(sizes) // 2  # no two prompts are one text
    n_all = step * (len(sizes) - 1) + max(sizes)
    tokens = workload_tokens(running.worker, MODEL, lease.corpus, Workload("pp", n_all))
    starts = range(0, step * len(sizes), step)
    prompts = [[tokens[0], *tokens[at + 1 : at + n]] for at, n in zip(starts, sizes, strict=True)]
    requests = [*zip(prompts, replied, strict=True)]
    among, alone, firsts, context = replied_together(running.worker, MODEL, requests, users)
    rows = [pair for pairs in zip(alone, among, strict=True) for pair in zip(*pairs, strict=True)]
    drift = _drift_of_rows(rows, running.ran(context), firsts[0] if users == 1 else 0, users)
    drift = replace(drift, firsts=firsts, lengths=tuple(replied))
    if users > 1:
        return drift
    long = workload_tokens(running.worker, MODEL, lease.corpus, Workload("pp", max(_LONG, depth)))
    return replace(drift, end=end_of(running.worker, MODEL, long))


def _drift_of_turns(running: RunningArm, lease: MachineLease) -> Drift:
    """Compare each reply with the logits of the same text computed anew."""
    n_pieces, n_replies = _LONGEST
    room = (running.loaded.n_ctx_train - n_replies * _ANSWERED) // n_pieces
    length = min(_ADDED, room)
    n_more = (n_pieces - 1) * length + n_replies * _ANSWERED
    shared = min(_SHARED, running.loaded.n_ctx_train - n_more)
    n_all = shared + length * max(max(pieces) for _, pieces in _TURNS)
    tokens = workload_tokens(running.worker, MODEL, lease.corpus, Workload("pp", n_all))
    texts = [tokens[:shared], *(tokens[at : at + length] for at in range(shared, n_all, length))]
    turns = [(number, [t for piece in pieces for t in texts[piece]]) for number, pieces in _TURNS]
    n_ctx = shared + n_more
    args = running.worker, MODEL, turns, _ANSWERED, n_ctx
    kept, anew, firsts, context = replied_in_turn(*args)
    rows = [pair for pairs in zip(anew, kept, strict=True) for pair in zip(*pairs, strict=True)]
    return replace(_drift_of_rows(rows, running.ran(context)), firsts=firsts, are_turns=True)


def _beginning_alike(tokens: Sequence[int], length: int) -> list[list[int]]:
    """Pieces of a text that each begin as the text does, with BOS if the tokenizer adds one."""
    starts = range(0, len(tokens), length)
    return [[tokens[0], *tokens[start + 1 : start + length]] for start in starts]


def _drift_of_rows(
    rows: Sequence[tuple[GroupedRow, GroupedRow]], ran: Provenance, first: int = 0, users: int = 1
) -> Drift:
    return Drift(
        tuple(kld(true, other) for true, other in rows),
        tuple(_top(true) == _top(other) for true, other in rows),
        ran,
        first,
        users,
        spreads=tuple(_spread(true, other) for true, other in rows),
    )


def _spread(true: GroupedRow, other: GroupedRow) -> tuple[float, float]:
    shares = [*map(exp, true)]
    mean = sum(map(mul, shares, true))
    own = [share * (value - mean) for share, value in zip(shares, true, strict=True)]
    return sum(map(mul, own, true)), sum(map(mul, own, other))


def _top(row: Sequence[float]) -> int:
    return row.index(max(row))
