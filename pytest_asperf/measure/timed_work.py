"""Examines the engine's state after a timed run, so that only computed work is timed.

After a run that is drawn at random, some of its positions are decoded again, each alone, with the
memory that the run left. The same tokens are computed in one batch of a fresh memory. The run is
also repeated, and made with another beginning, which is examined in the same way. An engine cannot
foresee which run that will be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean, median
from typing import Final, TypeAlias

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import (
    EngineRefusedError,
    GroupedRow,
    RawRun,
    RunRemains,
    Worker,
)
from pytest_asperf.errors import printable
from pytest_asperf.measure.feeding import Fed, ServedText

#: For an engine that does not show its state after a run.
NOT_EXAMINED: Final = "not examined, as the engine shows no logits inside of its runs"
#: Positions that are decoded again, in addition to the last: of the timed tokens, and of those
#: before.
_TIMED: Final = 15
_BEFORE: Final = 14
#: Positions of the whole text that show if weights predict anything.
_OF_TEXT: Final = 128
#: Comparisons of a repeated run and a new one, after the first, before the new one is called
#: slower, and their time, whichever ends later; the least time for whole texts.
_MORE_COMPARISONS: Final = 4
_SLOWER_NS: Final = 1_000_000_000
_COMPARED_NS: Final = 150_000_000
#: Whole texts have more, until either ends: times of sound runs vary twofold next to loops.
_MOST_COMPARISONS: Final = 16
_MOST_COMPARED_NS: Final = 6_000_000_000
#: Tokens of a prompt that need far longer than one token.
_LONG_PROMPT: Final = 64
#: Repetitions of a run whose call lasts far longer, and their time, whichever ends later: on a busy
#: machine a short call waits for a core. The first one fills the memory again.
_REPEATED: Final = 5
_REPEATED_NS: Final = 300_000_000
#: Fewer tokens have no beginning that could be changed.
_LEAST_CHANGED: Final = 3


@dataclass(frozen=True, slots=True)
class ChangedRun:
    """A timed run, and the same one with another beginning, whose final state was examined."""

    n_changed: int  #: tokens of the beginning that are in another order
    run_ns: int  #: time of the run
    changed_ns: int  #: that with the other beginning
    most: float  #: times as long as the run that it may last
    peaks: Sequence[float | None]  #: the largest logits of the run and of its repetitions
    left: Mapping[int, GroupedRow]  #: logits that it left, at positions behind the changed ones
    computed: Mapping[int, GroupedRow]  #: the same, computed in a batch of their own


@dataclass(frozen=True, slots=True)
class ExaminedRun:
    """A timed run whose final state was examined."""

    tokens: tuple[int, ...]  #: that it left in the memory
    left: RunRemains  #: logits that it left, and those of tokens decoded again after its remains
    #: logits of the same positions, and of chosen tokens, computed in a batch of their own
    computed: Mapping[int, GroupedRow]
    #: the run, or a repetition, with the least time outside of its timed part; None if the call has
    #: other work to do, too
    timed: RawRun | None = None
    #: the run with another beginning; None if the text has none that can be changed
    changed: ChangedRun | None = None
    #: more of the computed ones over the whole text, if those that were left differ
    text: Mapping[int, GroupedRow] = field(default_factory=dict)
    #: signs that runs of the same tokens did not end alike
    unequal_runs: tuple[GuardFinding, ...] = ()
    #: the reason why the engine could not be examined after the run; empty if it was
    refusal: str = ""

    @property
    def klds(self) -> Collection[float]:
        """KLD of each position's logits in the run from the computed ones, nats."""
        return guards.klds(self.computed, self.left.rows).values()

    def __str__(self) -> str:
        """The finding, and the run that it is about."""
        if not self.computed:
            return self.refusal
        return (
            f"mean KLD {number_text(fmean(self.klds), 2)} nats from a batch of the same tokens, at "
            f"{len(self.klds)} positions after a run"
        )

    @property
    def findings(self) -> tuple[GuardFinding, ...]:
        """The signs that the timed work was not done."""
        return tuple(finding for finding in self._findings() if finding)

    def _findings(self) -> Iterator[GuardFinding | None]:
        if self.refusal:
            yield guards.refused_examination(self.refusal)
            return
        yield from self.unequal_runs
        n = len(self.tokens)
        yield guards.skipped_work(n, self.left.n_held, self.left.rows)
        yield guards.other_logits(self.tokens, self.left.rows, self.computed, self.text)
        if not (self.text and guards.predicts_nothing(self.tokens, self.text)):
            yield guards.unlikely_choice(self.left.chosen, self.computed)
        if changed := self.changed:
            yield guards.unequal_runs(changed.peaks)
            yield guards.other_logits(self.tokens, changed.left, changed.computed, self.text)
            if n - 1 in self.left.rows and n - 1 in changed.left:
                rows = self.left.rows[n - 1], changed.left[n - 1]
                yield guards.ignored_context(n, changed.n_changed, *rows)
            yield guards.repeated_result(changed.run_ns, changed.changed_ns, changed.most)
        if self.timed is not None:
            yield _unlike_call(self.timed)

    def unlike(self, baseline: ExaminedRun) -> GuardFinding | None:
        """Signs that its results differ from the baseline's for the same tokens."""
        # A sound baseline agrees with itself, unless its weights amplify rounding into other
        # logits.
        if self.tokens != baseline.tokens or (
            baseline.text and guards.predicts_nothing(baseline.tokens, baseline.text)
        ):
            return None
        own = guards.usual_kld(baseline.klds) if baseline.computed else 0.0
        return guards.unlike_baseline(self.left.rows, baseline.left.rows, own)


def _unlike_call(run: RawRun) -> GuardFinding | None:
    """Signs that a run's calls did their work at another time; its first may be a whole prompt."""
    untimed = guards.untimed_work(run.timed_ns - run.waited_ns, run.call_ns - run.waited_ns)
    return untimed or guards.put_off_work(run.step_ns[1:])


#: Baseline and candidate; None for an engine that does not show its state after a run.
ExaminedPair: TypeAlias = "tuple[ExaminedRun | None, ExaminedRun | None]"


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call that times work on a loaded model."""

    worker: Worker  #: the process
    name: str  #: the model's name in it
    tokens: Sequence[int]  #: that the call leaves in the memory
    depth: int  #: those of them that were there beforehand, untimed
    time: Callable[[Sequence[int]], RawRun]  #: makes the same call of other tokens

    def examine(self, run: RawRun, coin: random.Random) -> ExaminedRun | None:
        """Examine the state after the call's last run; None if the engine does not show it.

        The next run finds no memory that it could go on with.

        Raises:
            WorkerError: the engine died.
        """
        tokens = tuple(self.tokens)
        positions = _drawn(len(tokens), self.depth, coin)
        try:
            left = self.worker.revisit(self.name, positions)
            if not left.rows:
                return None
            timed = self._least_untimed(run) if self._is_all_timed(run, left) else None
            changed = self._changed(run, positions)
            # A token that was decoded late shows by the choice after it alone.
            choices = coin.sample(sorted(left.chosen), min(_OF_TEXT, len(left.chosen)))
            at = sorted({*left.rows, *choices})
            computed = self.worker.recompute(self.name, tokens, at)
            text: Mapping[int, GroupedRow] = {}
            if guards.differ(left.rows, computed) or (
                changed and guards.differ(changed.left, changed.computed)
            ):
                # A few positions do not show if the weights predict anything.
                step = -(-len(tokens) // _OF_TEXT)
                text = self._of_text(range(0, len(tokens), step))
        except EngineRefusedError as error:
            nothing = RunRemains(None, {})
            return ExaminedRun(tokens, nothing, {}, refusal=printable(error.what))
        return ExaminedRun(tokens, left, computed, timed, changed, text)

    def _of_text(self, positions: Sequence[int]) -> Mapping[int, GroupedRow]:
        """Rows of the text from one batch; of tokens decoded alone if the batch predicts nothing.

        Such a batch can be a fault of the build, and then tokens alone may predict.
        """
        together = self.worker.recompute(self.name, self.tokens, positions)
        if not guards.predicts_nothing(self.tokens, together):
            return together
        self.worker.generate(self.name, self.tokens, 0)
        alone = self.worker.revisit(self.name, positions).rows
        return alone if len(alone) > 1 else together

    @property
    def _most_repeated(self) -> float:
        return guards.MOST_REPEATED_WHOLE if self._is_whole else guards.MOST_REPEATED

    @property
    def _is_whole(self) -> bool:
        """True if all tokens of a long text are timed: then the changed ones are, too."""
        return not self.depth and len(self.tokens) >= _LONG_PROMPT

    def _is_all_timed(self, run: RawRun, left: RunRemains) -> bool:
        """True if the call had hardly any other work than the run.

        A memory that cannot drop its end is filled anew, and some engines show the logits of a
        prompt by one more token.
        """
        n_timed = len(self.tokens) - self.depth
        is_long = n_timed >= _LONG_PROMPT or len(run.step_ns) >= n_timed
        return is_long and (not self.depth or len(left.rows) > 1)

    def _least_untimed(self, run: RawRun) -> RawRun:
        """The run, or a repetition if its call lasted far longer: the machine may be busy.

        A wait for a core in the timed part must not hide what is untimed. So a call is sound if it
        would be without its wait, wherever that was. If none is, the one counts that waited least,
        without that wait: long waits are not counted exactly.
        """
        repeated: list[RawRun] = []
        while _unlike_call(run):
            spent_ns = sum(one.call_ns for one in repeated)
            if len(repeated) >= _REPEATED and spent_ns >= _REPEATED_NS:
                run = min(repeated, key=attrgetter("waited_ns"))
                return replace(run, call_ns=run.call_ns - run.waited_ns, waited_ns=0)
            run = self.time(self.tokens)
            repeated.append(run)
        return run

    def _changed(self, run: RawRun, positions: Sequence[int]) -> ChangedRun | None:
        """Examine a run with another beginning; None if the text has none that can be changed."""
        if not (n_changed := _n_changeable(self.tokens, self.depth)):
            return None
        other = _with_other_beginning(self.tokens, n_changed)
        first = self.time(other)
        behind = [position for position in positions if position >= n_changed]
        left = self.worker.revisit(self.name, behind).rows
        times, peaks = self._compared(run, first, n_changed)
        computed = self.worker.recompute(self.name, other, sorted(left))
        return ChangedRun(n_changed, *times, self._most_repeated, peaks, left, computed)

    def _compared(
        self, run: RawRun, changed: RawRun, n_changed: int
    ) -> tuple[tuple[int, int], list[float | None]]:
        """Times of a repeated run and of one with other tokens, and all peaks of repeated ones.

        If the latter is slower, the machine may have been busy. So there are several comparisons,
        each with tokens that are new to the engine, and one with like times ends them. Otherwise
        the medians count, of as many as a scheduler needs to treat both alike. No time has the
        engine's wait for a core: a call with more work before its timed part waits more.

        A new run of a whole text is slower if two figures show it. The least times, so that no slow
        moment hides a beginning that was kept; in the end the second least, as one of both may have
        run before other work began. And the median ratio, as a core may change its speed.
        """
        times, peaks = [(_working_ns(run), _working_ns(changed))], [_peak(run)]
        spent_ns = _spent_ns(run, changed)
        while True:
            n = len(times)
            is_last = n > _MORE_COMPARISONS and spent_ns >= _SLOWER_NS
            if self._is_whole:
                is_last &= n >= _MOST_COMPARISONS or spent_ns >= _MOST_COMPARED_NS
                found = _least_and_typical(times)
            else:
                found = [_medians(times) if is_last else times[-1]]
            is_alike = not any(
                guards.repeated_result(*of_both, self._most_repeated) for of_both in found
            )
            if is_last or (is_alike and (not self._is_whole or spent_ns >= _COMPARED_NS)):
                return min(found, key=_slowdown), peaks
            first, run = self.time(self.tokens), self.time(self.tokens)
            changed = self.time(_with_other_beginning(self.tokens, n_changed))
            times.append((_working_ns(run), _working_ns(changed)))
            spent_ns += _spent_ns(run, changed)
            peaks += _peak(first), _peak(run)


def _spent_ns(*runs: RawRun) -> int:
    """The time of calls, as a build that does nothing needs none for its runs."""
    return sum(max(run.call_ns, run.elapsed_ns) for run in runs)


def _working_ns(run: RawRun) -> int:
    """The time of a run without its part of what the call waited for a core."""
    part = min(1.0, run.elapsed_ns / max(run.call_ns, 1))
    return max(1, round(run.elapsed_ns - part * run.waited_ns))


def _peak(run: RawRun) -> float | None:
    return run.logits.peak if run.logits else None


def _slowdown(times: tuple[int, int]) -> float:
    """The time of a run of new tokens over that of a repeated run."""
    run_ns, new_ns = times
    return new_ns / run_ns


def _medians(compared: Sequence[tuple[int, int]]) -> tuple[int, int]:
    run_ns, new_ns = (round(median(times)) for times in zip(*compared, strict=True))
    return run_ns, new_ns


def _least_and_typical(compared: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The least time of either run, or the second least of many, and the median comparison."""
    nth = 1 if len(compared) > _MORE_COMPARISONS else 0
    run_ns, new_ns = (sorted(times)[nth] for times in zip(*compared, strict=True))
    return [(run_ns, new_ns), sorted(compared, key=_slowdown)[len(compared) // 2]]


def _drawn(n_tokens: int, depth: int, coin: random.Random) -> list[int]:
    """The last position, and some of equal parts of the timed tokens and of those before them."""
    last = n_tokens - 1
    ranges = [(max(1, depth), last, _TIMED if depth > 1 else _TIMED + _BEFORE), (1, depth, _BEFORE)]
    drawn = {last}
    for begin, end, n_parts in ranges:
        size = (end - begin) / n_parts
        starts = (begin + size * part for part in range(n_parts) if end > begin)
        drawn.update(min(end - 1, int(start + size * coin.random())) for start in starts)
    return sorted(drawn)


def _n_changeable(tokens: Sequence[int], depth: int) -> int:
    """The size of the text's beginning that can be in another order; 0 if there is none.

    It is the first half of the text, or of the tokens before the timed ones.
    """
    end = (depth or len(tokens)) // 2
    return end if len(set(tokens[1:end])) >= _LEAST_CHANGED else 0


def _with_other_beginning(tokens: Sequence[int], n_changed: int) -> list[int]:
    """The tokens with the beginning in another order; the first one, which may be BOS, stays.

    A seed would give orders again that an engine has seen, in another test or a rerun.
    """
    beginning = list(tokens[1:n_changed])
    changed = beginning
    while changed == beginning:
        changed = random.SystemRandom().sample(beginning, len(beginning))
    return [tokens[0], *changed, *tokens[n_changed:]]


def time_workload(worker: Worker, name: str, tokens: Fed, workload: Workload) -> RawRun:
    """Time one run of a workload on a loaded model."""
    if isinstance(tokens, ServedText):
        return worker.serve(name, tokens.text, workload)
    return _time_tokens(worker, name, tokens[: workload.n_ctx], workload, workload.room)


def answer_before(worker: Worker, name: str, fed: Fed, workload: Workload) -> None:
    """Have a model answer the requests that come before a workload, in the workload's context."""
    for number, request in enumerate(workload.before):
        if isinstance(fed, ServedText):
            worker.serve(name, fed.text, request)
            continue
        first = number % (len(fed) - request.n_ctx + 1)
        tokens = fed[first : first + request.n_ctx]
        _time_tokens(worker, name, tokens, request, workload.room)


def _time_tokens(
    worker: Worker, name: str, tokens: Sequence[int], workload: Workload, n_ctx: int
) -> RawRun:
    """Time one run of a workload in a context of so many tokens."""
    if workload.kind == "ttft":
        return worker.first_token(name, tokens, n_ctx=n_ctx)
    if workload.kind == "request":
        return _time_request(worker, name, tokens, workload, n_ctx)
    if workload.kind == "pp":
        return worker.prompt(name, tokens, workload.depth, n_ctx=n_ctx)
    return worker.generate(name, tokens, workload.depth, n_ctx=n_ctx, sampled=workload.sampled)


def timed_call(worker: Worker, name: str, tokens: Fed, workload: Workload) -> TimedCall | None:
    """The call that times a workload, so that its run can be examined; None of a server's."""
    if isinstance(tokens, ServedText):
        return None

    def time_it(other: Sequence[int]) -> RawRun:
        return time_workload(worker, name, [*other, *tokens[len(other) :]], workload)

    # The last token of a request is chosen and not decoded.
    n_held = workload.n_ctx - (workload.kind == "request")
    return TimedCall(worker, name, tokens[:n_held], workload.depth, time_it)


def _time_request(
    worker: Worker, name: str, tokens: Sequence[int], workload: Workload, n_ctx: int
) -> RawRun:
    """Time a prompt until its first output token, and then each further one."""
    first = worker.first_token(name, tokens[: workload.depth], n_ctx=n_ctx)
    rest = worker.generate(name, tokens[:-1], workload.depth, n_ctx=n_ctx)
    return replace(
        rest,
        n_tokens=1 + rest.n_tokens,
        elapsed_ns=first.elapsed_ns + rest.elapsed_ns,
        call_ns=first.call_ns + rest.call_ns,
        step_ns=(first.elapsed_ns, *rest.step_ns),
    )
