"""A server's own account of its replies, against itself and against what the client received."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure
from pytest_asperf.analysis.serving_metrics import ServedRequest, complete, itl_ns

#: Share of the client's time by which a server's own times may differ from it, and ns: a busy
#: client reads late. llama-server's differ by 3 % and 6 ms where all cores are busy.
TIMES_SHARE: Final = 0.25
_TIMES_NS: Final = 30e6
#: Share by which a server's rate may differ from its own count and time, and share of tokens by
#: which there may be more chunks with text: a chunk can have a part of a character's bytes.
_RATE_SHARE: Final = 0.02
_MORE_CHUNKS: Final = 0.25
#: Share of a generation's time within as many gaps as the target had steps: tokens that it accepted
#: together come together. llama-server's have 96 to 99.8 % (24 replies, up to 16 drafted tokens).
STEPS_SHARE: Final = 0.8
#: Names of llama-server and Ollama: times in ms and in ns, and counts.
_TIMES: Final = (("prompt_ms", "predicted_ms", 1e6), ("prompt_eval_duration", "eval_duration", 1.0))
_COUNTS: Final = ("prompt_n", "cache_n", "predicted_n", "eval_count", "draft_n", "draft_n_accepted")
_REPORTED: Final = (*_COUNTS, *(name for *names, _ in _TIMES for name in names))


def false_account(done: Sequence[ServedRequest]) -> GuardFinding | None:
    """Trip if a server's account of its replies contradicts itself, or what was received.

    One false count is enough. A busy client reads some replies late, so that times are false only
    in most of several replies.
    """
    read = complete(done)
    for contradictions, least in ((_false_counts, 0), (_false_times, max(2, len(read) // 2))):
        false = [said for reply in read if (said := next(contradictions(reply), ""))]
        if len(false) > least:
            return _finding(f"in {len(false)} of {len(read)} replies: {false[0]}")
    return None


def false_drafts(
    drafted: int, accepted: int, n_output: int, gaps_ns: Sequence[int] = ()
) -> GuardFinding | None:
    """Trip if counts of drafted tokens cannot be those of an output of so many tokens.

    Args:
        drafted: tokens.
        accepted: tokens.
        n_output: tokens.
        gaps_ns: times between the output's tokens as they came; empty if they came together.
    """
    counts = _false_drafts(drafted, accepted, n_output)
    said = next(chain(counts, _false_steps(accepted, gaps_ns)), "")
    return _finding(f"about its drafts: {said}") if said else None


def _finding(what: str) -> GuardFinding:
    return Guard.FALSE_ACCOUNT.finding(
        f"the engine's own account is false {what}",
        "its counts agree with one another and with what was received, and its times with the "
        f"client's clock within {TIMES_SHARE:.0%} and {_TIMES_NS / 1e6:g} ms",
    )


def _false_counts(reply: ServedRequest) -> Iterator[str]:
    said, n, n_prompt = reply.timings, reply.n_output, reply.n_prompt
    yield from (f"{name} is negative" for name in _REPORTED if said.get(name, 0) < 0)
    yield from _false_drafts(*_drafts(reply), len(reply.event_ns) if n is None else n)
    if n is not None:
        if len(reply.event_ns) > n + max(2, _MORE_CHUNKS * n):
            yield f"{n} tokens in {len(reply.event_ns)} chunks with text"
        for name in ("predicted_n", "eval_count"):
            if abs(said.get(name, n) - n) > 1:
                yield f"{name} is {said[name]:g} of {n} tokens"
    if n_prompt is not None and {"prompt_n", "cache_n"} <= said.keys():
        read, cached = said["prompt_n"], said["cache_n"]
        if abs(read + cached - n_prompt) > 1:
            yield f"prompt_n {read:g} and cache_n {cached:g} of a prompt of {n_prompt} tokens"


def _false_times(reply: ServedRequest) -> Iterator[str]:
    said = reply.timings
    whole_ns, span_ns = reply.closed_ns - reply.start_ns, reply.event_ns[-1] - reply.event_ns[0]
    for prompt, generation, unit in _TIMES:
        if generation not in said:
            continue
        own_ns = unit * said[generation]
        if unit * said.get(prompt, 0) + own_ns > _at_most(whole_ns):
            yield f"{prompt} and {generation} are longer than a request of {_ms(whole_ns)}"
        if span_ns > _at_most(own_ns):
            yield f"{generation} is {_ms(own_ns)}, where the tokens came in {_ms(span_ns)}"
    _, accepted = _drafts(reply)
    yield from _false_steps(accepted, itl_ns(reply))
    n, own_ms, rate = (said.get(f"predicted_{name}", 0) for name in ("n", "ms", "per_second"))
    if own_ms and rate:  # by version, the first token counts or not
        low, high = (1e3 * count / own_ms for count in (n - 1, n))
        if not (1 - _RATE_SHARE) * low <= rate <= (1 + _RATE_SHARE) * high:
            yield f"predicted_per_second is {figure(rate)} of {n:g} tokens in {own_ms:g} ms"


def _false_drafts(drafted: int, accepted: int, n_output: int) -> Iterator[str]:
    """Each step of the target adds a token of its own to those that it accepts."""
    if not 0 <= accepted <= drafted:
        yield f"{accepted} of {drafted} drafted tokens accepted"
    elif accepted and accepted >= n_output:
        yield f"{accepted} tokens accepted of an output of {n_output}"


def _false_steps(accepted: int, gaps: Sequence[int]) -> Iterator[str]:
    """The accepted tokens of a reply come without a gap, each with one of the target's own."""
    longest = sorted(gaps)[max(0, accepted - 1) :]
    share = sum(longest) / max(1, sum(gaps))
    if accepted and sum(gaps) and share < STEPS_SHARE:  # 0 if all tokens were read at once
        yield (
            f"{accepted} of {len(gaps) + 1} tokens accepted, where the {len(longest)} longest gaps "
            f"between tokens have {share:.0%} of the time"
        )


def _drafts(reply: ServedRequest) -> tuple[int, int]:
    drafted, accepted = (int(reply.timings.get(name, 0)) for name in _COUNTS[-2:])
    return drafted, accepted


def _at_most(ns: float) -> float:
    return (1 + TIMES_SHARE) * ns + _TIMES_NS


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
