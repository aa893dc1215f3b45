"""Logits that a run left, against another computation of them: was timed work done, and soundly?

A row has log-probabilities of groups of tokens, in nats (`engine_process.GroupedRow`).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from pytest_asperf.analysis.guards.guard import Consequence, Guard, GuardFinding, figure
from pytest_asperf.analysis.stats.estimate import number_text, percent_text

Row = Sequence[float]
Rows = Mapping[int, Row]

#: Share of its vocabulary from which a PPL is no model's. Guessing evenly makes all of it; half of
#: it is one bit better than that, and counting how often tokens occur gives far more.
KNOWS_NOTHING: Final = 0.5

#: Changes of PPL that no quantization of the same weights reaches, as coarser weights lose
#: knowledge; and that no weights reach that were trained further, such as QAT's.
IMPOSSIBLE_GAIN: Final = -0.1
IMPOSSIBLE_GAIN_OF_TRAINING: Final = -0.5

#: Accepted multiple of the baseline's drift, up to ten times the drift of any healthy build.
DRIFT_GROWTH: Final = 2.0
_DRIFT_MOST: Final = 10.0


def knows_nothing(ppl: float, n_vocab: int) -> GuardFinding | None:
    """Trip if a baseline predicts a text hardly better than by guessing among its tokens."""
    if ppl < KNOWS_NOTHING * n_vocab:
        return None
    return Guard.BASELINE_KNOWS_NOTHING.finding(
        f"the baseline's PPL is {figure(ppl)}, and guessing among its {n_vocab} tokens makes "
        f"{figure(n_vocab)}",
        f"a baseline's PPL lies below {KNOWS_NOTHING:.0%} of its vocabulary",
    )


def impossible_gain(change: float, *, is_other_model: bool = False) -> GuardFinding | None:
    """Trip if PPL falls by more of the baseline's than quantization, or training, can explain.

    A model that is declared under another name than its baseline may be a fine-tuned one.
    """
    limit = IMPOSSIBLE_GAIN_OF_TRAINING if is_other_model else IMPOSSIBLE_GAIN
    if change > limit:
        return None
    whose = "further training" if is_other_model else "a quantization"
    return Guard.IMPOSSIBLE_GAIN.finding(
        f"PPL changes by {percent_text(change, 4)}: the baseline is broken, or of another model",
        f"{whose} does not improve on a sound baseline's PPL by {-limit:.0%}",
    )


def drift_limit(floor: float, baseline: float, most: float = _DRIFT_MOST) -> float:
    """The limit of a drift that the baseline has too: twice that, up to `most` times the floor."""
    return min(max(floor, float(f"{DRIFT_GROWTH * baseline:.2g}")), most * floor)


def baseline_drifts(drifts: Mapping[str, tuple[float, float, float]]) -> GuardFinding | None:
    """Trip if a candidate's drift is above its limit only as far as the baseline's is too.

    Each has, by its name, the candidate's value, the baseline's and the limit. A model that
    amplifies rounding, or a fault of both builds, cannot show what the candidate alone has.
    """
    above = {name: drift for name, drift in drifts.items() if drift[0] > drift[2]}
    if not above or any(drift > DRIFT_GROWTH * base for drift, base, _ in above.values()):
        return None
    name, (drift, base, limit) = next(iter(above.items()))
    return Guard.BASELINE_DRIFTS.finding(
        f"{name} is {number_text(drift, 2)}, and {number_text(base, 2)} in the baseline alone: "
        "both have the fault, or the model amplifies rounding",
        f"{name} is at most {number_text(limit, 2)}, or in the candidate more than "
        f"{DRIFT_GROWTH:g} times the baseline's",
    )


def lossless(n_tokens: int, reason: str) -> GuardFinding:
    """The warning that a quantization has the baseline's probability for every token."""
    return Guard.LOSSLESS_BY_CONSTRUCTION.finding(
        f"all {n_tokens} tokens have the same probability as in the baseline: {reason}",
        "such a file shows nothing about quantization",
    )


#: KLD, nats, on average over the positions of a run, and of any one of them. Shipped models at F16
#: to Q2_K, with q8_0 and q4_0 caches, had at most 0.013 and 0.23; of a context that loses all but
#: its last 256 tokens the average is 0.6 or more (docs/guards.md).
MOST_MEAN_KLD: Final = 0.1
MOST_KLD: Final = 1.0
#: Usual KLD of a candidate's runs from a baseline whose own runs hardly differ from batches:
#: coarser weights, at Q4_K_M instead of F16, have 0.033, or 0.044 of all (docs/benchmarks.md).
MOST_UNLIKE_KLD: Final = 0.022
#: The same of the tokens that a server lists. Servers whose caches are F16 and q8_0 had 0.013.
MOST_UNLIKE_LISTED: Final = 0.05
#: Probability of the tokens that a server does not list, at least.
_LEAST_REST: Final = 1e-6
_LEAST_SHARE: Final = 1e-30
#: Sum of the probabilities that a server lists, at most; they may be rounded.
_MOST_TOTAL: Final = 1.05
#: Probability of a run's likeliest token by the computed logits, as a share of the likeliest one's.
#: Sound builds differ in near-ties alone.
_LEAST_CHOSEN: Final = 0.1
#: A candidate that is faster by more is believed only if its work was examined.
BELIEVABLE_SPEEDUP: Final = 2.0
#: A run of new tokens may last this many times as long as a repeated run: after tokens that are
#: decoded untimed, and if all of a long text is timed.
MOST_REPEATED: Final = 2.0
MOST_REPEATED_WHOLE: Final = 1.25
#: Difference of the largest logits of equal runs, as a share of them, or at least of `_LEAST_PEAK`.
#: At Q4_K_M rounding made 0.17 of 6.29, as tokens before a run were decoded in a batch or alone.
_EQUAL_PEAKS: Final = 0.08
_LEAST_PEAK: Final = 8.0
#: Time of a run's call outside of the timed part: share of that part, and ns to send tokens and to
#: read logits. Sound engines need 0.5 to 1 ms, and MLX one more token after a prompt.
_MOST_UNTIMED: Final = 0.5
_UNTIMED_NS: Final = 2e6
#: The fastest quarter of a run's calls has less than this share of a call's mean time if calls put
#: their work off. The median of 25 sound runs was 0.2 to 1.0 on a machine with eight busy loops.
_PUT_OFF: Final = 0.05
_FEW_STEPS: Final = 4

#: Share by which the tokens of an answer's text may differ from the answer's: one text has several
#: ways to be tokens. llama-server's differed by none in 20 answers.
UNCOUNTED_SHARE: Final = 0.1
#: Accepted multiple of a short answer's TTFT in a long answer's.
DELAY_SHARE: Final = 1.5
#: In addition: a client without a core for so long sees a short answer at once.
_CLIENT_LAG_NS: Final = 20e6

_RULE: Final = (
    f"logits inside of a timed run are those of the same tokens in a batch of their own: KLD at "
    f"most {MOST_MEAN_KLD:g} nats on average and {MOST_KLD:g} at any position"
)


def kld(true: Row, other: Row) -> float:
    """KLD of a row from the true one, nats."""
    return sum(math.exp(a) * (a - b) for a, b in zip(true, other, strict=True))


def kld_of_listed(true: Mapping[str, float], other: Mapping[str, float]) -> float:
    """KLD of the likeliest tokens from the true ones, nats; the rest of the vocabulary is one.

    Tokens that only the true ones have count as one too: each is at most as likely as the other's
    least likely one. Infinite if the other's probabilities have a sum above 1.
    """
    total = _share(other.values())
    if total > _MOST_TOTAL:
        return math.inf
    shared = [token for token in true if token in other]
    new = [true[token] for token in true if token not in other]
    one, two = (_share(row[token] for token in shared) for row in (true, other))
    # The other's probability that is left is divided so that the divergence is the least possible.
    most = min(len(new) * math.exp(min(other.values())), 1 - total)
    share_new = max(_LEAST_SHARE, min(most, (1 - two) * min(1, _share(new) / _rest(one))))
    parts = [(_share([true[token]]), _share([other[token]])) for token in shared]
    parts += [(_share(new), share_new), (_rest(one + _share(new)), _rest(two + share_new))]
    return math.fsum(mine * math.log(mine / theirs) for mine, theirs in parts)


def _share(values: Iterable[float]) -> float:
    """The probability of tokens by their log-probabilities, and never 0."""
    return max(_LEAST_SHARE, sum(map(math.exp, values)))


def _rest(share: float) -> float:
    """The probability of all other tokens."""
    return max(_LEAST_REST, 1 - share)


def klds(true: Rows, other: Rows) -> dict[int, float]:
    """KLD of each position that both have, nats."""
    return {
        position: kld(true[position], other[position]) for position in other if position in true
    }


def usual_kld(found: Collection[float]) -> float:
    """Mean KLD of positions without the largest tenth of them, nats.

    Few positions may have most of a healthy build's KLD: on a card one of ten had 0.76 nats, and
    all ten 0.9.
    """
    return fmean(sorted(found)[: len(found) - len(found) // 10])


def skipped_work(n_tokens: int, n_held: int | None, left: Rows) -> GuardFinding | None:
    """Trip if the state after a timed run shows that not all its tokens were decoded.

    Args:
        n_tokens: up to the run's last one, those before the timed ones included.
        n_held: tokens in the engine's memory by its own report; None without one.
        left: rows that the run left, by position.
    """
    if n_held is not None and n_held != n_tokens:
        found = f"after a timed run of {n_tokens} tokens the engine's memory has {n_held}"
        return Guard.TIMED_WORK.finding(found, "a timed run leaves all its tokens in the memory")
    rows = list(left.values())
    if len(rows) > 1 and all(row == rows[0] for row in rows):
        places = ", ".join(map(str, sorted(left)))
        found = f"after a timed run the logits of positions {places} are the same"
        return Guard.TIMED_WORK.finding(found, "logits depend on the token and on what precedes it")
    return None


def other_logits(
    tokens: Sequence[int], left: Rows, computed: Rows, text: Rows
) -> GuardFinding | None:
    """Trip if a timed run of these tokens left other logits than their own computation gives.

    A warning if the weights predict nothing by the rows of the text: then the right logits are
    unknown.
    """
    if not differ(left, computed):
        return None
    finding = _differing(klds(computed, left), "in a batch of their own", _RULE)
    if predicts_nothing(tokens, text):
        return replace(finding, consequence=Consequence.WARNING)
    return finding


def unlikely_choice(chosen: Mapping[int, int], computed: Rows) -> GuardFinding | None:
    """Trip if a run's own choice of the likeliest next token is unlikely by the computed logits.

    Logits that are read once a run has ended do not show that each of its steps had its own.
    """
    shares = {
        position: math.exp(row[chosen[position] % len(row)] - max(row))
        for position, row in computed.items()
        if position in chosen
    }
    position = min(shares, key=shares.__getitem__, default=0)
    if not shares or shares[position] >= _LEAST_CHOSEN:
        return None
    return Guard.TIMED_WORK.finding(
        f"the token that a timed run chose after position {position} is {shares[position]:.2g} "
        "times as likely as the likeliest one in a batch of the same tokens",
        f"the likeliest token of each step is at least {_LEAST_CHOSEN:g} times as likely there",
    )


def differ(left: Rows, true: Rows) -> bool:
    """True if rows are further from the true ones than a healthy build's."""
    found = klds(true, left).values()
    return bool(found) and (fmean(found) > MOST_MEAN_KLD or max(found) > MOST_KLD)


def predicts_nothing(tokens: Sequence[int], rows: Rows) -> bool:
    """True if rows predict the tokens that follow them no better than guessing, as random weights.

    Such weights amplify any rounding into other logits: batches and single tokens differ by nats.
    """
    followed = [(position, row) for position, row in rows.items() if position + 1 < len(tokens)]
    if not followed:
        return False
    nll = fmean(-row[tokens[position + 1] % len(row)] for position, row in followed)
    return nll >= math.log(KNOWS_NOTHING * len(followed[0][1]))


def unlike_baseline(candidate: Rows, baseline: Rows, own_kld: float) -> GuardFinding | None:
    """Trip if two builds leave different logits of the same tokens.

    Args:
        candidate: rows that its run left, by position.
        baseline: those of the baseline's run.
        own_kld: usual KLD of the baseline's run from a batch of the same tokens.
    """
    most = min(MOST_MEAN_KLD, max(MOST_UNLIKE_KLD, DRIFT_GROWTH * own_kld))
    rule = (
        f"logits of both builds differ by at most {MOST_UNLIKE_KLD:g} nats on average without the "
        f"largest tenth, or by {DRIFT_GROWTH:g} times what the baseline's own do, and by "
        f"{MOST_KLD:g} at any position"
    )
    found = klds(baseline, candidate)
    if not found or (usual_kld(found.values()) <= most and max(found.values()) <= MOST_KLD):
        return None
    return _differing(found, "in the baseline", rule)


def ignored_context(n_tokens: int, n_changed: int, row: Row, other: Row) -> GuardFinding | None:
    """Trip if the last logits stay the same to the bit when the text begins with other tokens."""
    if list(row) != list(other):
        return None
    return Guard.TIMED_WORK.finding(
        f"the logits after {n_tokens} tokens stay the same when the first {n_changed} are changed",
        "logits depend on all of the context",
    )


def repeated_result(
    run_ns: float, new_run_ns: float, most: float = MOST_REPEATED
) -> GuardFinding | None:
    """Trip if a timed run is far faster than a run of tokens that are new to the engine."""
    if new_run_ns <= most * run_ns:
        return None
    return Guard.TIMED_WORK.finding(
        f"a timed run lasted {run_ns / 1e6:.3g} ms, and one that begins with other tokens "
        f"{new_run_ns / 1e6:.3g} ms",
        f"new tokens are at most {most:g} times as slow as repeated ones",
    )


def unequal_runs(peaks: Sequence[float | None]) -> GuardFinding | None:
    """Trip if runs of the same tokens do not end with the same logits, by the largest of each."""
    known = [peak for peak in peaks if peak is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    if most - least <= _EQUAL_PEAKS * max(_LEAST_PEAK, abs(least), abs(most)):
        return None
    return Guard.TIMED_WORK.finding(
        f"the largest logit after runs of the same tokens is {figure(least)} to {figure(most)}",
        "each run of the same tokens ends with the same logits",
    )


def untimed_work(timed_ns: float, call_ns: float) -> GuardFinding | None:
    """Trip if the call of a timed run lasted far longer, by our clock, than its timed part."""
    if call_ns <= (1 + _MOST_UNTIMED) * timed_ns + _UNTIMED_NS:
        return None
    return Guard.TIMED_WORK.finding(
        f"the engine timed a run as {timed_ns / 1e6:.3g} ms, and its caller waited for "
        f"{call_ns / 1e6:.3g} ms",
        f"the untimed part of a call takes at most {_UNTIMED_NS / 1e6:g} ms and "
        f"{_MOST_UNTIMED:.0%} of the timed part",
    )


def put_off_work(step_ns: Sequence[float]) -> GuardFinding | None:
    """Trip if many calls of a run need no time: their tokens were decoded in later calls."""
    if len(step_ns) < _FEW_STEPS:
        return None
    mean, quick = fmean(step_ns), sorted(step_ns)[len(step_ns) // 4]
    if quick >= _PUT_OFF * mean:
        return None
    return Guard.TIMED_WORK.finding(
        f"a quarter of {len(step_ns)} timed calls returned within {quick / 1e6:.3g} ms, and the "
        f"mean is {mean / 1e6:.3g} ms",
        f"a quarter of the calls takes no less than {_PUT_OFF:.0%} of the mean",
    )


def refused_examination(reason: str) -> GuardFinding:
    """The finding that an engine cannot compute a token after a timed run."""
    return Guard.TIMED_WORK.finding(
        f"after a timed run the engine computes no further token: {reason}", "the engine goes on"
    )


def shortened_answer(n: int, n_whole: int) -> GuardFinding:
    """The finding that a timed answer is the beginning of a longer one to the same request."""
    return Guard.TIMED_WORK.finding(
        f"a timed answer has {n} characters, and one to the same request goes on to {n_whole}",
        "a timed answer has all its tokens",
    )


def other_answers(n_tries: int, own: float, other: float) -> GuardFinding:
    """The finding that a server's timed answers are not the model's.

    Args:
        n_tries: requests that were sent again.
        own: the largest share of an answer that the server gave again.
        other: the largest share that both builds' servers gave.
    """
    return Guard.TIMED_WORK.finding(
        f"of {n_tries} timed requests with their seeds, the server gave at most {own:.0%} of an "
        f"answer again, and the baseline's server {other:.0%}",
        "two servers of the same weights agree in half of an answer's text, or in their likeliest "
        "answers",
    )


def unlikely_answers(n: int, n_unlikely: int) -> GuardFinding:
    """The finding that a server's answers have words that its model does not choose.

    Args:
        n: answers.
        n_unlikely: those with such words.
    """
    return Guard.TIMED_WORK.finding(
        f"{n_unlikely} of {n} answers to users' requests have words that the model does not choose",
        "the likeliest tokens are those by the log-probabilities of the same weights, or nearly as "
        "likely, and sampled ones are not excluded by min-p",
    )


def random_answers(n_tries: int, most: float) -> GuardFinding:
    """The finding that a server answers a request otherwise each time, even without sampling."""
    return Guard.TIMED_WORK.finding(
        f"of {n_tries} requests that were sent again, with their seeds and without sampling, at "
        f"most {most:.0%} of an answer came again",
        "half of an answer comes again with its seed, or without sampling",
    )


def other_among_users(n: int, share: float) -> GuardFinding:
    """The finding that a server answers otherwise if requests of several users come at once."""
    return Guard.TIMED_WORK.finding(
        f"of {n} answers without sampling to requests of several users, {share:.0%} came again "
        "from the request alone",
        "most answers come again without the other users",
    )


def one_answer(n: int) -> GuardFinding:
    """The finding that a server gives one answer to requests that differ."""
    return Guard.TIMED_WORK.finding(
        f"{n} requests that differ in prompt, seed or temperature have the same answer, or end of "
        "an answer",
        "an answer depends on its prompt, and if it is sampled on its seed, to its end",
    )


def other_rest(n: int, most: float) -> GuardFinding:
    """The finding that answers are not what follows a prompt and their own first part."""
    return Guard.TIMED_WORK.finding(
        f"of {n} answers without sampling, at most {most:.0%} of the rest came again when their "
        "first part was added to the prompt",
        "half of the next words comes again, from the first words of an answer and from its middle",
    )


def other_if_sampled(n: int, most: float) -> GuardFinding:
    """The finding that sampling by a temperature near 0 does not choose the likeliest tokens."""
    return Guard.TIMED_WORK.finding(
        f"of {n} answers at a temperature near 0, at most {most:.0%} was that without sampling",
        "half of an answer at a temperature near 0 is that without sampling",
    )


def made_up_samples() -> GuardFinding:
    """The finding that sampled answers are not of the words that a model chooses from."""
    return Guard.TIMED_WORK.finding(
        "sampled answers have hardly a word that is the likeliest one, as if any were chosen",
        "sampled words are now and then the likeliest ones",
    )


def lost_context(n_tokens: int, found: float, most: float) -> GuardFinding:
    """The finding that a server's log-probabilities at a timed depth are not the baseline's."""
    return Guard.TIMED_WORK.finding(
        f"after {n_tokens} tokens, of which the last repeat the first, the mean KLD from the "
        f"baseline is {number_text(found, 2)} nats",
        f"it is at most {most:g} nats after as many tokens as are timed",
    )


def uncounted_text(n_text: int | None, n_tokens: int | None) -> GuardFinding | None:
    """Trip if the text of an answer has another number of tokens than the server counted.

    Args:
        n_text: tokens of the text, as the server counts a prompt's; None if it does not.
        n_tokens: of the answer, by the server's count; None without one.
    """
    if (
        n_text is None
        or n_tokens is None
        or abs(n_text - n_tokens) <= 2 + UNCOUNTED_SHARE * n_tokens
    ):
        return None
    return Guard.FALSE_ACCOUNT.finding(
        f"the text of an answer of {n_tokens} tokens has {n_text}, as the server counts a prompt's",
        f"both differ by at most 2 tokens and {UNCOUNTED_SHARE:.0%}",
    )


def delayed_tokens(first_ns: float, short_first_ns: float, span_ns: float) -> GuardFinding | None:
    """Trip if a long answer's first token comes later than a short one's, by more than its rest.

    Args:
        first_ns: TTFT of a long answer.
        short_first_ns: TTFT of a short answer to a prompt of the same length.
        span_ns: from the first to the last token of the long answer.
    """
    if first_ns <= DELAY_SHARE * short_first_ns + span_ns + _CLIENT_LAG_NS:
        return None
    return Guard.TIMED_WORK.finding(
        f"the first token of a long answer came after {first_ns / 1e6:.3g} ms, and of a short one "
        f"after {short_first_ns / 1e6:.3g} ms: the server keeps tokens, and then sends them "
        f"in {span_ns / 1e6:.3g} ms",
        f"both differ by at most the rest of the answer, {DELAY_SHARE - 1:.0%} and "
        f"{_CLIENT_LAG_NS / 1e6:g} ms",
    )


def unchecked_gain(speedup: float) -> GuardFinding | None:
    """Trip if a candidate whose timed work was not examined is unbelievably fast."""
    if speedup <= BELIEVABLE_SPEEDUP:
        return None
    return Guard.UNCHECKED_GAIN.finding(
        f"{number_text(speedup, 3)} times as fast, and the engine shows no logits of timed runs",
        f"a gain of more than {BELIEVABLE_SPEEDUP:g} times needs logits of the timed work",
    )


def _differing(found: Mapping[int, float], where: str, rule: str) -> GuardFinding:
    position, largest = max(found.items(), key=lambda item: item[1])
    return Guard.TIMED_WORK.finding(
        f"logits that a timed run left differ from those {where}: mean KLD "
        f"{number_text(fmean(found.values()), 2)} nats over {len(found)} positions, "
        f"{number_text(largest, 2)} at position {position}",
        rule,
    )
