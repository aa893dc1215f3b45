"""An engine's output: log, text and tokens. Lines are read one at a time, once."""

import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.errors import printable

#: llama.cpp's log lines for a batch that was not decoded (`llama_decode` and its callers).
_DECODE_ERROR: Final = re.compile(
    r"failed to (?:de|en)code|llama_(?:de|en)code\(?\)? (?:failed|returned -?[1-9])|failed to eval"
    r"|cannot decode batches|command buffer \d+ failed with status",
    re.IGNORECASE,
)
#: Log lines of ggml-rpc and Core ML if the requested device does no work: ggml-rpc.cpp, and the
#: Neural Engine's compiler.
_REMOTE_ERROR: Final = re.compile(
    r"Failed to connect to|Remote RPC server crashed|ANECCompile\(\) FAILED", re.IGNORECASE
)
_LINE_READ: Final = 10_000
_LINE_SHOWN: Final = 120

#: Units that a loop may consist of.
LONGEST_LOOP: Final = 8
#: A unit lies in a loop from the third copy in succession on.
LOOP_COPIES: Final = 3
#: Share of units in loops from which text is degenerate, and the smallest number of units for that
#: verdict. Published speculative outputs whose decodes had failed have 43 and 59 %; prose, code and
#: tables 1 to 2 %.
DEGENERATE_SHARE: Final = 0.20
DEGENERATE_LEAST: Final = 40

#: Words, single digits and single signs: a row of twos, or of commas, is a loop too.
_UNIT: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_")

#: Logits within this of the highest are a near-tie. Decoding in batches instead of token by token
#: moves a logit by up to 0.22 (llama.cpp on a CPU), so the distance of two by up to twice that.
NEAR_TIE: Final = 0.5


def decode_errors(lines: Iterable[str]) -> GuardFinding | None:
    """Trip if an engine's log reports batches that were not decoded."""
    return counted_decode_errors(*_matching(lines, _DECODE_ERROR))


def counted_decode_errors(count: int, first: str = "") -> GuardFinding | None:
    """Trip if a log has lines about failed decodes; the first one may be given."""
    if not count:
        return None
    return Guard.DECODE_ERRORS.finding(
        f"{count} of the log's lines report a failed decode{_quoted(first)}",
        "no failed decode (0 lines)",
    )


def remote_errors(lines: Iterable[str]) -> GuardFinding | None:
    """Trip if an engine's log reports a remote or device that did not do its part."""
    return counted_remote_errors(*_matching(lines, _REMOTE_ERROR))


def counted_remote_errors(count: int, first: str = "") -> GuardFinding | None:
    """Trip if a log has lines about a remote or device that did not do its part."""
    if not count:
        return None
    return Guard.PATH_MISMATCH.finding(
        f"{count} of the log's lines report a device that did not do its part{_quoted(first)}",
        "the requested device does the work (0 lines)",
    )


def gpu_limits(
    gpu: str, *, has_matrix: bool | None, working_set_bytes: int | None, is_over: bool
) -> GuardFinding | None:
    """Trip if a Mac's GPU cannot multiply matrices, or was given more memory than it should have.

    Args:
        gpu: its name.
        has_matrix: whether it has simdgroup matrix multiplication; None if unknown.
        working_set_bytes: memory that Metal recommends at most.
        is_over: True if the engine reports a larger allocation.
    """
    faults = []
    if has_matrix is False:
        faults.append(
            "it has no simdgroup matrix multiplication, so slower kernels or the processor compute "
            "the products"
        )
    if is_over:
        size = "its working set"
        if working_set_bytes:
            size += f" of {memory_text(working_set_bytes)}"
        faults.append(f"more than {size} was allocated, so the system may move weights out")
    if not faults:
        return None
    return Guard.GPU_LIMITS.finding(
        f"{printable(gpu, 80)}: {'; '.join(faults)}",
        "the GPU is of family Apple7 or later, and allocations are within its working set",
    )


def degenerate_output(lines: Iterable[str]) -> GuardFinding | None:
    """Trip if generated text runs in loops: `holds holds holds`, `2222222`."""
    words = (unit for line in lines for unit in _UNIT.findall(line))
    return degenerate_tokens(words, what="words")


def degenerate_tokens(tokens: Iterable[Hashable], *, what: str = "tokens") -> GuardFinding | None:
    """Trip if generated tokens, called `what` in the message, run in loops."""
    total = looping = 0
    for in_loop in _in_loops(tokens):
        total += 1
        looping += in_loop
    if total < DEGENERATE_LEAST or looping < DEGENERATE_SHARE * total:
        return None
    return Guard.DEGENERATE_OUTPUT.finding(
        f"{looping} of {total} {what} ({looping / total:.0%}) repeat what came before them, "
        f"{LOOP_COPIES} times or more in succession",
        f"less than {DEGENERATE_SHARE:.0%} in loops of up to {LONGEST_LOOP} {what}",
    )


def first_divergence(alone: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two outputs differ, in length too; None if nowhere."""
    shared = zip(alone, other, strict=False)
    differing = (n for n, (a, b) in enumerate(shared) if a != b)
    end = min(len(alone), len(other)) if len(alone) != len(other) else None
    return next(differing, end)


def broken_logits(
    *,
    n_vocab: int,
    n_nan: int,
    n_inf: int,
    peak: float | None,
    largest: float,
    is_flat: bool = False,
) -> GuardFinding | None:
    """Trip if a row of logits has NaN or plus infinity, is flat, or has a peak beyond `largest`.

    Minus infinity masks a token; without a finite logit there is no peak. A flat row prefers no
    token: its head is zeroed, was never filled, or the model is none that predicts tokens.
    """
    if n_nan or n_inf:
        problem = f"after a run's last token {n_nan} of {n_vocab} logits are NaN, {n_inf} infinite"
    elif peak is None:
        problem = f"after a run's last token none of {n_vocab} logits is finite"
    elif abs(peak) > largest:
        problem = f"after a run's last token the largest logit is {peak:.4g}"
    elif is_flat:
        problem = f"after a run's last token all {n_vocab} logits are {peak:.4g}"
    else:
        return None
    return Guard.BROKEN_LOGITS.finding(
        problem,
        f"logits are numbers that differ, the largest within ±{largest:,.0f} (half precision's "
        "range)",
    )


def divergent_output(position: int, gap: float) -> GuardFinding | None:
    """Trip if an output leaves the target's own greedy one at no near-tie.

    Batches round differently from single tokens, so a near-tie may be decided either way. Equal
    bytes are therefore too strict, and anything more is another model's output. The gap is the
    distance of the emitted token's logit from the highest, under the target's own logits at the
    `first_divergence`.
    """
    if gap <= NEAR_TIE:
        return None
    return Guard.DIVERGENT_OUTPUT.finding(
        f"at token {position} the output leaves the target's own greedy output for a token whose "
        f"logit lies {gap:.3g} below the highest",
        f"the first difference is a near-tie: within {NEAR_TIE:g} of the highest logit",
    )


def _matching(lines: Iterable[str], pattern: re.Pattern[str]) -> tuple[int, str]:
    count, first = 0, ""
    for line in lines:
        if pattern.search(line[:_LINE_READ]):
            count += 1
            first = first or printable(line.strip(), _LINE_SHOWN)
    return count, first


def _quoted(first: str) -> str:
    return f", the first: {first!r}" if first else ""


def _in_loops(units: Iterable[Hashable]) -> Iterator[bool]:
    """For each unit: True if it belongs to a third or later copy of the text before it."""
    recent: deque[Hashable] = deque(maxlen=LONGEST_LOOP)
    repeated = [0] * (LONGEST_LOOP + 1)
    for unit in units:
        for lag in range(1, len(recent) + 1):
            repeated[lag] = repeated[lag] + 1 if recent[-lag] == unit else 0
        yield any(repeated[n] > (LOOP_COPIES - 2) * n for n in range(1, LONGEST_LOOP + 1))
        recent.append(unit)
