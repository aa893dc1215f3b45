"""Guards on requests to a server: its replies, and the client's view of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from pytest_asperf.analysis.guards.account import false_account
from pytest_asperf.analysis.guards.arms import path_mismatch
from pytest_asperf.analysis.guards.guard import Consequence, Guard, GuardFinding, figure
from pytest_asperf.analysis.serving_metrics import (
    ServedRequest,
    complete,
    itl_ns,
    served_at_once,
    ttft_ns,
)
from pytest_asperf.errors import printable

#: Share of a prompt that may come from the cache, and tokens: BOS, a chat's head and a word by
#: chance are common to all.
CACHED_SHARE: Final = 0.05
ALIKE: Final = 8
#: Share of a prompt that comes from the cache if its reuse is timed: caches of blocks leave some
#: tokens of the end to compute.
WARM_SHARE: Final = 0.8
#: A prompt of equal length needs more than this share of the time, or a part of it was cached.
COLD_SHARE: Final = 0.5
#: Share of tokens that may come with another: bytes of one character are sent together, and the
#: end of the text has no chunk, or an empty one.
JOINED_SHARE: Final = 0.05
#: A first gap of so many later ones, and longer than TTFT, is the prompt's time.
ROLE_GAP: Final = 5.0
#: Share of the wall time in which the client's threads may compute, all under one lock, and share
#: of a gap between tokens by which their stamps may lag. At this load a chunk waits on average for
#: a sixth of another one's processing (M/D/1: rho / (2 (1 - rho))).
CLIENT_SHARE: Final = 0.25
#: A median of fewer prompts shows little.
_LEAST_TTFTS: Final = 5
#: Prompts whose lengths differ by more have different times.
_ALIKE_LENGTHS: Final = 1.1
#: Characters of a server's error that are shown.
_LONGEST_ERROR: Final = 300
#: Number of the failures that are shown.
_KINDS_SHOWN: Final = 3
#: A gap of less than this share of the average one is none: its chunk came with the one before.
_BURST_SHARE: Final = 0.1
#: Replies of fewer tokens hardly overlap, with any server.
_LEAST_OVERLAP: Final = 16


@dataclass(frozen=True, slots=True)
class ServedWork:
    """The work requested of a server, and the part of its replies that is timed."""

    #: of a closed loop; None if requests arrive at a rate, or if it is unknown
    n_users: int | None = None
    #: tokens of each prompt; None if the prompts differ, or only the server counts them
    n_prompt: int | None = None
    n_output: int | None = None  #: requested number of tokens; None for any number
    model: str = ""  #: the requested one; empty for any
    times_prompt: bool = True  #: whether a prompt is timed, which must be new to the server
    is_warm: bool = False  #: whether the prompt must not be new: the server has read it just before
    times_gaps: bool = True  #: whether the gaps between tokens are timed
    #: True if asperf's client sent the requests, so that its own cost is known
    is_ours: bool = True
    #: the time that our stamps must not lag behind; None for the gaps between tokens
    timed_ns: float | None = None


def served_requests(
    work: ServedWork, done: Sequence[ServedRequest], states: Sequence[Mapping[str, object]] = ()
) -> list[GuardFinding]:
    """All guards that one series of requests allows: of tests, gates, loads and files of others.

    `states` are the server's facts about itself before and after the requests.
    """
    read = complete(done)
    found = [
        failed_requests(Counter(r.failure for r in done if r.failure), len(done)),
        *_of_prompts(work, read),
        *_of_output(work, read),
        another_model(done, work.model),
        restarted(states[0], states[-1]) if states else None,
        false_account(read) if work.is_ours else None,
        client_bound(done, work.timed_ns) if read and work.is_ours else None,
    ]
    return [finding for finding in found if finding is not None]


def _of_prompts(work: ServedWork, read: Sequence[ServedRequest]) -> Iterable[GuardFinding | None]:
    yield context_cut([(r.n_prompt, r.is_cut) for r in read], work.n_prompt)
    counts = [(r.n_cached, r.n_prompt) for r in read]
    if work.is_warm:
        yield not_reused(counts)
    elif work.times_prompt:
        yield cached_prompt(counts)
        yield short_ttft(read) if work.n_users == 1 else None


def _of_output(work: ServedWork, read: Sequence[ServedRequest]) -> Iterable[GuardFinding | None]:
    if work.n_output is not None:
        yield fewer_tokens([r.n_output for r in read], work.n_output)
    if work.times_gaps:
        yield tokens_in_chunks([(len(r.event_ns), r.n_output) for r in read])
    # With several users the first gap may be another one's prompt, and with few replies a stall.
    if (work.n_users == 1 and len(read) >= _LEAST_TTFTS) or not work.is_ours:
        yield first_chunk_early([(ttft_ns(r), itl_ns(r)) for r in read])


def another_model(done: Sequence[ServedRequest], asked: str) -> GuardFinding | None:
    """Trip if a reply names another model than the requested one."""
    others = [r.model for r in done if r.model and not r.model.startswith(asked)]
    return path_mismatch({"model": asked}, {"model": others[0]}) if asked and others else None


def failed_requests(failures: Mapping[str, int], n: int) -> GuardFinding | None:
    """Trip if a request was rejected, or its stream was cut off or ended in an error."""
    n_failed = sum(failures.values())
    if not n_failed:
        return None
    most = Counter(failures).most_common(_KINDS_SHOWN)
    kinds = ", ".join(f"{printable(kind, 120)} ({count})" for kind, count in most)
    return Guard.FAILED_REQUESTS.finding(
        f"{n_failed} of {n} requests have no complete reply: {kinds}",
        "every request has a complete reply; figures of the others are of a lighter load",
    )


def failed_examination(said: str) -> GuardFinding:
    """The finding that a server failed after its timed replies, in its own words."""
    return Guard.FAILED_REQUESTS.finding(
        f"the server failed while a reply was examined: {printable(said, _LONGEST_ERROR)}",
        "every further request has a complete reply",
    )


def cached_prompt(prompts: Iterable[tuple[int | None, int | None]]) -> GuardFinding | None:
    """Trip if a server used its cache for prompts, by (cached, all) tokens of each."""
    cached = [(c, n) for c, n in prompts if c and n and c > max(ALIKE, CACHED_SHARE * n)]
    if not cached:
        return None
    most, of = max(cached)
    return Guard.CACHED_PROMPT.finding(
        f"{len(cached)} prompts came from the server's cache, up to {most} of {of} tokens",
        f"at most {CACHED_SHARE:.0%} of a prompt, or {ALIKE} tokens, are cached, unless the "
        "assertion is about the cache",
    )


def not_reused(prompts: Iterable[tuple[int | None, int | None]]) -> GuardFinding | None:
    """Trip unless a server used its cache for prompts, by (cached, all) tokens of each."""
    cold = [(c, n) for c, n in prompts if not c or not n or c < WARM_SHARE * n]
    if not cold:
        return None
    least, of = min(cold, key=lambda one: one[0] or 0)
    known = least is not None
    cached = f"{least} of {of} tokens from its cache" if known else "no count of cached tokens"
    return Guard.NOT_REUSED.finding(
        f"{len(cold)} prompts that the server had just read were read again, with {cached}",
        f"at least {WARM_SHARE:.0%} of a warm prompt is cached",
    )


def short_ttft(done: Sequence[ServedRequest]) -> GuardFinding | None:
    """Trip if some prompts of one user were far faster than others of the same length.

    It is a hint for servers that do not report cached tokens: it cannot detect that all prompts
    came from the cache.
    """
    known = [r for r in complete(done) if r.n_cached is None]
    lengths = [r.n_prompt or 0 for r in known]
    if len(known) < _LEAST_TTFTS or max(lengths) > _ALIKE_LENGTHS * min(lengths):
        return None
    typical = median(map(ttft_ns, known))
    short = [r for r in known if ttft_ns(r) < COLD_SHARE * typical]
    if not short:
        return None
    return Guard.CACHED_PROMPT.finding(
        f"{len(short)} of {len(known)} prompts needed less than half of the median TTFT of "
        f"{figure(typical / 1e6)} ms",
        f"TTFT of equal prompts is at least {COLD_SHARE:.0%} of its median",
        Consequence.WARNING,
    )


def tokens_in_chunks(counts: Iterable[tuple[int, int | None]]) -> GuardFinding | None:
    """Trip if chunks are no tokens, by (chunks with output, tokens) of each reply."""
    known = [(chunks, n) for chunks, n in counts if n]
    off = [(chunks, n) for chunks, n in known if abs(n - chunks) > max(1, JOINED_SHARE * n)]
    if not off:
        return None
    chunks, n = max(off, key=lambda one: abs(one[1] - one[0]) / one[1])
    return Guard.TOKENS_PER_CHUNK.finding(
        f"{len(off)} of {len(known)} replies came in other chunks than tokens, such as {n} tokens "
        f"in {chunks} chunks",
        f"gaps between chunks are gaps between tokens where both counts differ by at most "
        f"{JOINED_SHARE:.0%}, or one",
    )


def joined_stamps(done: Sequence[ServedRequest]) -> GuardFinding | None:
    """Trip if half of a reply's chunks came with the one before: sent, or read, in bursts."""
    joined = [gaps for r in complete(done) if _is_joined(gaps := itl_ns(r))]
    if not joined:
        return None
    gaps = joined[0]
    apart = 1 + sum(gap >= _BURST_SHARE * mean(gaps) for gap in gaps)
    return Guard.TOKENS_PER_CHUNK.finding(
        f"{len(joined)} of {len(done)} replies came in other pieces than tokens, such as "
        f"{len(gaps) + 1} chunks in {apart} reads or bursts",
        f"more than half of the gaps are at least {_BURST_SHARE:.0%} of their mean, which needs a "
        "spare core",
    )


def _is_joined(gaps: Sequence[float]) -> bool:
    return len(gaps) > 1 and median(gaps) < _BURST_SHARE * mean(gaps)


def first_chunk_early(replies: Iterable[tuple[float, Sequence[float]]]) -> GuardFinding | None:
    """Trip if a first chunk without a token was counted, by (TTFT, later gaps) of each reply."""
    long = [(ttft, gaps, median(gaps[1:])) for ttft, gaps in replies if len(gaps) > 2]
    early = [
        gaps[0] / later
        for ttft, gaps, later in long
        if later and gaps[0] > max(ttft, ROLE_GAP * later)
    ]
    if not early or len(early) < len(long) / 2:
        return None
    return Guard.ROLE_CHUNK.finding(
        f"in {len(early)} of {len(long)} replies the first gap is {figure(median(early))} times a "
        "later one and longer than TTFT, so the first chunk may have no token",
        f"the first gap is at most {ROLE_GAP:g} later ones, or shorter than TTFT",
    )


def fewer_tokens(n_output: Iterable[int | None], asked: int) -> GuardFinding | None:
    """Trip if a reply has another number of tokens than requested."""
    other = [n for n in n_output if n is not None and n != asked]
    if not other:
        return None
    return Guard.OTHER_LENGTH.finding(
        f"{len(other)} replies have {min(other)} to {max(other)} tokens, {asked} were requested",
        "each reply has the requested length (end of text ignored)",
    )


def context_cut(
    prompts: Iterable[tuple[int | None, bool]], asked: int | None
) -> GuardFinding | None:
    """Trip if a server read less of a prompt than was sent; by (tokens read, is reported)."""
    cut = [n for n, is_cut in prompts if is_cut or (asked and n is not None and n < asked)]
    if not cut:
        return None
    least = min((n for n in cut if n is not None), default=0)
    return Guard.CONTEXT_CUT.finding(
        f"{len(cut)} prompts were cut, to as few as {least} tokens"
        + (f" of {asked}" if asked else ""),
        "the server reads the whole prompt",
    )


def queueing(
    done: Sequence[ServedRequest],
    n_users: int,
    n_slots: object = None,
    *,
    is_compared: bool = False,
) -> GuardFinding | None:
    """Trip if a server serves fewer users at once than there are: some wait in its queue.

    A figure for this many simultaneous users is then wrong. If two servers are compared, the wait
    is part of their users' experience, and a warning reports it. If a server does not report its
    number of slots, the overlap of the replies is a hint, and no proof.

    Args:
        done: the requests.
        n_users: of the closed loop.
        n_slots: by the server's own report; None without one.
        is_compared: whether the times are compared with another server's, under the same load.
    """
    rule = "all users of a closed loop are served at once"
    if isinstance(n_slots, int):
        slots = f"{n_slots} slot{'s' * (n_slots != 1)}"
        found = f"the server has {slots} for {n_users} users, and the others waited"
        consequence = Consequence.WARNING if is_compared else Consequence.INVALID
        return Guard.QUEUEING.finding(found, rule, consequence) if n_slots < n_users else None
    long = [r for r in complete(done) if (r.n_output or 0) >= _LEAST_OVERLAP]
    overlap = served_at_once(long)
    if len(long) < n_users or overlap >= n_users:
        return None
    found = f"at most {overlap} replies of {n_users} users were generated at one time"
    return Guard.QUEUEING.finding(found, rule, Consequence.WARNING)


def restarted(before: Mapping[str, object], after: Mapping[str, object]) -> GuardFinding | None:
    """Trip if a server is another than before: its identity changed, or a counter went back."""
    changed = [
        f"{printable(name, 80)} was {printable(before[name], 80)} and is {printable(now, 80)}"
        for name, now in after.items()
        if name in before and before[name] is not None and _is_other(name, before[name], now)
    ]
    if not changed:
        return None
    return Guard.SERVER_RESTARTED.finding(
        "; ".join(changed), "one server, with one start, answers all requests"
    )


def _is_other(name: str, before: object, now: object) -> bool:
    is_counter = name.endswith("_total")
    if is_counter and isinstance(before, int | float) and isinstance(now, int | float):
        return now < before
    return before != now


def client_bound(
    done: Sequence[ServedRequest], timed_ns: float | None = None
) -> GuardFinding | None:
    """Trip if the client cannot follow the server: busy, or late by much of the timed interval.

    The interval is, for example, the TTFT; None for the gaps between tokens.
    """
    elapsed_ns = max(r.closed_ns for r in done) - min(r.start_ns for r in done)
    share = sum(r.cpu_ns for r in done) / max(1, elapsed_ns)
    lag_us = max(r.lag_ns for r in done) / 1e3
    gaps_us = [mean(itl_ns(r)) / 1e3 for r in complete(done) if len(r.event_ns) > 1]
    gap_us = median(gaps_us) if gaps_us else math.inf
    timed_us = gap_us if timed_ns is None else timed_ns / 1e3
    if share <= CLIENT_SHARE and lag_us <= CLIENT_SHARE * timed_us:
        return None
    return Guard.CLIENT_BOUND.finding(
        f"the client computed {share:.1%} of the time, and its stamps lag by {figure(lag_us)} us "
        f"where {figure(timed_us)} us are timed",
        f"the client computes at most {CLIENT_SHARE:.0%} of the time, and lags by at most as much "
        "of what it times",
    )
