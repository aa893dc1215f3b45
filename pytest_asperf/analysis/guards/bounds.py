"""Rates against the limits of memory, acceptance counts and the tool's own token counts."""

from typing import Final

from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure, require_positive
from pytest_asperf.analysis.stats.estimate import percent_text

#: Share of the memory bandwidth below which generation is not bound by it. The 0.8B model at Q8 on
#: an M2 Ultra, measured with llama-bench (140 tok/s, sd 0.5), uses 21 %; the same model, published
#: as bandwidth-bound at 70 tok/s, uses 14 %.
ROOFLINE_LOW: Final = 0.20

#: Excess of a rate over the bound of a speculative round that is tolerated: runs of the target
#: alone, the basis of the bound, differ by so much on an otherwise quiet machine.
SD_TOLERANCE: Final = 0.05

#: Relative difference between a predicted and a measured rate from which a reader is warned:
#: c and C(k) measured apart from the run they predict are rarely nearer.
PREDICTION_TOLERANCE: Final = 0.25

#: Two rates nearer than this are equal: published figures are rounded this far.
ROUNDING: Final = 0.01


def roofline_high(
    steps_per_s: float, bytes_per_step: float, bandwidth_gbs: float, *, cache_bytes: float = 0
) -> GuardFinding | None:
    """Trip if a rate means more memory traffic than the memory has bandwidth.

    A step is a token, or a round of speculation, which reads the target once and the draft k times.
    A part of a step's bytes may be in the last-level cache, which can have at most its own size;
    all other bytes come from memory each time (the roofline model: Williams, Waterman and
    Patterson, CACM 52(4), 2009). The bandwidth is the theoretical one, as advertised ones are
    rounded.
    """
    require_positive(
        steps_per_s=steps_per_s, bytes_per_step=bytes_per_step, bandwidth_gbs=bandwidth_gbs
    )
    traffic_gbs = steps_per_s * (bytes_per_step - cache_bytes) / 1e9
    if traffic_gbs <= bandwidth_gbs:
        return None
    beyond = f" beyond {figure(cache_bytes / 1e6)} MB of cache" if cache_bytes else ""
    return Guard.ROOFLINE_HIGH.finding(
        f"{figure(steps_per_s)} steps/s that read {figure(bytes_per_step / 1e9)} GB each{beyond} "
        f"take {figure(traffic_gbs)} GB/s, {traffic_gbs / bandwidth_gbs:.0%} of "
        f"{figure(bandwidth_gbs)} GB/s",
        "no rate above memory bandwidth / bytes that a step reads from memory",
    )


def roofline_low(
    steps_per_s: float, bytes_per_step: float, bandwidth_gbs: float, *, cache_bytes: float = 0
) -> GuardFinding | None:
    """Trip if a model that is read from memory, not from the cache, uses little bandwidth."""
    require_positive(
        steps_per_s=steps_per_s, bytes_per_step=bytes_per_step, bandwidth_gbs=bandwidth_gbs
    )
    share = steps_per_s * bytes_per_step / (bandwidth_gbs * 1e9)
    if bytes_per_step <= cache_bytes or share >= ROOFLINE_LOW:
        return None
    return Guard.ROOFLINE_LOW.finding(
        f"{figure(steps_per_s)} steps/s that read {figure(bytes_per_step / 1e9)} GB each use "
        f"{percent_text(share, 2)} of {figure(bandwidth_gbs)} GB/s, so memory does not bound them",
        f"below {ROOFLINE_LOW:.0%} of the memory bandwidth, look for a fallback or an overhead",
    )


def sd_bound(
    measured: float,
    target_alone: float,
    *,
    k: int,
    drafted: int,
    accepted: int,
    c: float = 0.0,
    verify: float = 1.0,
) -> GuardFinding | None:
    """Trip if speculation is faster (in tok/s) than its own acceptance counts allow.

    drafted / k is the least number of rounds, and a round emits its accepted tokens and one of the
    target's, so tokens per round <= 1 + accepted k / drafted. Without further facts, drafting
    counts as free (`c`, in steps of the target) and a batch (`verify`, C(k + 1)) as one step, so a
    figure that trips this is impossible.
    """
    require_positive(measured=measured, target_alone=target_alone, k=k, drafted=drafted)
    if not 0 <= accepted <= drafted or c < 0 or not verify > 0:
        raise ValueError(f"{accepted} accepted of {drafted}, c = {c}, C = {verify}")
    emitted = 1 + accepted * k / drafted
    bound = target_alone * (1 + sd_model.gain(emitted, k, c, verify))
    if measured <= bound * (1 + SD_TOLERANCE):
        return None
    costs = f"c = {c:.3g}" if c else "drafting counted as free"
    return Guard.SD_BOUND.finding(
        f"{figure(measured)} tok/s with {accepted} of {drafted} drafted tokens accepted at "
        f"k = {k}: a round emits at most {emitted:.3g} tokens, so at most {figure(bound)} tok/s, "
        f"compared with {figure(target_alone)} of the target alone ({costs}, C({k + 1}) = "
        f"{verify:.3g})",
        f"no more than {SD_TOLERANCE:.0%} above target rate x (1 + accepted per round) / "
        f"(k c + C(k + 1))",
    )


def predicted_against_measured(
    predicted: float, measured: float, *, unit: str = "tok/s"
) -> GuardFinding | None:
    """Trip if a model of a rate and its measurement disagree."""
    require_positive(predicted=predicted, measured=measured)
    ratio = measured / predicted
    if 1 / (1 + PREDICTION_TOLERANCE) <= ratio <= 1 + PREDICTION_TOLERANCE:
        return None
    return Guard.PREDICTED_AGAINST_MEASURED.finding(
        f"{figure(measured)} {unit} measured and {figure(predicted)} {unit} predicted, "
        f"{ratio:.3g} times as much",
        f"a prediction and its measurement lie within a factor of {1 + PREDICTION_TOLERANCE:g}",
    )


def token_accounting(
    rate: float, *, n_prompt: int, n_generated: int, elapsed_s: float
) -> GuardFinding | None:
    """Trip if a rate of generation in tok/s counts the tokens of the prompt."""
    require_positive(rate=rate, n_prompt=n_prompt, n_generated=n_generated, elapsed_s=elapsed_s)
    own, with_prompt = n_generated / elapsed_s, (n_prompt + n_generated) / elapsed_s
    if abs(rate / own - 1) <= ROUNDING or abs(rate / with_prompt - 1) > ROUNDING:
        return None
    return Guard.TOKEN_ACCOUNTING.finding(
        f"{figure(rate)} tok/s is {n_prompt + n_generated} tokens in {figure(elapsed_s)} s, "
        f"{n_prompt} of them the prompt's; the {n_generated} generated ones make {figure(own)} "
        "tok/s",
        f"a rate of generation counts generated tokens only (equal within {ROUNDING:.0%})",
    )
