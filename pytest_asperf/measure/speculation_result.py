"""The results of speculation: raw rounds and times of two variants, and the estimates from them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NoReturn

from pytest_asperf.analysis import guards, metrics
from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.stats.chunk_intervals import share_interval
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.intervals import median_interval, paired_change_interval
from pytest_asperf.config.spec import Pairing
from pytest_asperf.engine_process import ContextFacts, Margin, StepCosts
from pytest_asperf.errors import MeasurementError, no_truth_value
from pytest_asperf.hardware.watch import NOT_WATCHED, Watched
from pytest_asperf.measure.ab_speed import ABResult
from pytest_asperf.measure.results import Provenance
from pytest_asperf.worker.speculation import Generation, Round

_TIMES: Final = "x"

#: Parts of a speculative run's time.
PARTS: Final = ("draft", "verify", "rollback", "other")


@dataclass(frozen=True, slots=True)
class PromptRun:
    """Both variants on one prompt, by its index, back to back in random order."""

    prompt: int
    #: by the target alone; or with its draft here, if the other is on another machine
    alone: Generation
    speculative: Generation  #: with the draft that is judged
    speculative_first: bool

    @property
    def both(self) -> tuple[Generation, Generation]:
        """The run that the other one is compared with, and that one."""
        return self.alone, self.speculative


@dataclass(frozen=True, slots=True)
class SuitePair:
    """Both variants on every prompt in the order of their runs, and single batches' costs then."""

    runs: tuple[PromptRun, ...]
    costs: StepCosts
    k: int

    @property
    def alone_ns(self) -> int:
        """Time of the target alone."""
        return sum(run.alone.elapsed_ns for run in self.runs)

    @property
    def speculative_ns(self) -> int:
        """Time with the draft."""
        return sum(run.speculative.elapsed_ns for run in self.runs)

    @property
    def step_ns(self) -> float:
        """Time of one step of the target alone, the unit of costs.

        Means, here and in the costs: an interruption costs both variants, single batches and whole
        runs in proportion, and a median would remove it from the short ones only.
        """
        return _step_ns([run.alone for run in self.runs])

    @property
    def verify(self) -> dict[int, float]:
        """By positions in a batch, the cost of verifying it, in steps: C."""
        times = self.costs.target_ns.items()
        return {size: statistics.fmean(ns) / self.step_ns for size, ns in times}

    @property
    def c(self) -> float:
        """The cost of a draft step in a round, in steps of the target."""
        first, later = (self._mean_draft_ns(name) for name in ("first", "next"))
        if first is not None:
            return (first + (self.k - 1) * (later or 0.0)) / self.k / self.step_ns
        drafted = sum(round_.drafted for run in self.runs for round_ in run.speculative.rounds)
        draft_ns = sum(round_.draft_ns for run in self.runs for round_ in run.speculative.rounds)
        return draft_ns / max(1, drafted) / self.step_ns

    @property
    def catching_up(self) -> float:
        """The extra cost of the draft's first batch if it has two tokens, in steps."""
        two, first = (self._mean_draft_ns(name) for name in ("first_of_two", "first"))
        return 0.0 if two is None or first is None else max(0.0, two - first) / self.step_ns

    @property
    def n_rounds(self) -> int:
        """Rounds of all speculative runs."""
        return sum(len(run.speculative.rounds) for run in self.runs)

    @property
    def beside(self) -> float:
        """The rest of a round's time in steps: rollback, and the loop."""
        rounds = (round_ for run in self.runs for round_ in run.speculative.rounds)
        rest_ns = self.speculative_ns - sum(round_.draft_ns + round_.verify_ns for round_ in rounds)
        return rest_ns / self.n_rounds / self.step_ns

    def _mean_draft_ns(self, name: str) -> float | None:
        times = self.costs.draft_ns.get(name)
        return statistics.fmean(times) if times else None

    @property
    def ratio(self) -> float:
        """Rate of the draft by itself over that of the target by itself."""
        alone = self.costs.draft_alone
        if not alone:
            return 1 / self.c if self.c else math.inf
        return self.step_ns / _step_ns(alone)

    @property
    def predicted_gain(self) -> float:
        """Gain by counts of accepted tokens and costs of steps.

        Every round costs its drafted tokens times c, C of its batch, and its other time. If all
        rounds are alike, that is `sd_model.gain`; here the last round of a run may be shorter, and
        the draft processes two tokens after a round in which all were accepted.
        """
        verify, c, catching_up = self.verify, self.c, self.catching_up
        cost, emitted = self.beside * self.n_rounds, 0
        for run in self.runs:
            behind = False
            for round_ in run.speculative.rounds:
                emitted += round_.emitted
                cost += round_.drafted * c + verify[round_.drafted + 1]
                cost += catching_up if behind and round_.drafted else 0.0
                behind = round_.drafted > 0 and round_.accepted == round_.drafted
        return emitted / cost - 1


@dataclass(frozen=True, slots=True)
class Divergence:
    """The place at which greedy outputs with and without the draft diverge, and how near to a tie.

    The position is that of the first different token.
    """

    prompt: int
    position: int
    tokens: tuple[int, int]
    margin: Margin

    @property
    def guard_finding(self) -> GuardFinding | None:
        """The guard's finding on it: none, if it is a near-tie."""
        return guards.divergent_output(self.position, self.margin.largest)


@dataclass(frozen=True, slots=True)
class Counts:
    """The accepted tokens of one variant's speculation."""

    n_tokens: int  #: tokens generated after each prompt
    #: drafted and accepted tokens, each counted on its first verification
    by_prompt: tuple[tuple[int, int], ...]

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(drafted for drafted, _ in self.by_prompt)

    @property
    def accepted(self) -> int:
        """Tokens accepted."""
        return sum(accepted for _, accepted in self.by_prompt)

    @property
    def supplied(self) -> tuple[float, ...]:
        """Share of each prompt's output that the draft supplied."""
        return tuple(accepted / self.n_tokens for _, accepted in self.by_prompt)


@dataclass(frozen=True, slots=True)
class SpeculationComparison:
    """Speculation of one target and draft in two variants."""

    pairing: Pairing  #: the pair that ran
    speed: ABResult  #: the pairs
    counts: tuple[Counts, Counts]  #: of baseline and candidate
    categories: tuple[str, ...]  #: of each prompt
    #: where the candidate's outputs with and without the draft part
    divergences: tuple[Divergence, ...]
    #: the replies of baseline and candidate, by the prompt's number
    outputs: tuple[Mapping[int, list[int]], ...] = ({}, {})


@dataclass(frozen=True)
class RoundCounts:
    """The drafted, accepted and emitted tokens of rounds, without their times."""

    #: category of the prompt, and rounds, of each run
    by_run: tuple[tuple[str, Sequence[Round]], ...]
    k: int  #: tokens drafted in a whole round

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every round of every run."""
        return tuple(row for _, rounds in self.by_run for row in rounds)

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(row.drafted for row in self.rounds)

    @property
    def accepted(self) -> int:
        """Tokens accepted, each counted on its first verification."""
        return sum(row.accepted for row in self.rounds)

    @property
    def acceptance(self) -> float:
        """Accepted of drafted tokens."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @cached_property
    def acceptance_by_category(self) -> dict[str, float]:
        """Accepted of drafted tokens, by category."""
        return self._by_category(
            lambda rounds: sum(r.accepted for r in rounds) / max(1, sum(r.drafted for r in rounds))
        )

    @cached_property
    def length_by_category(self) -> dict[str, float]:
        """Emitted tokens per round, by category."""
        return self._by_category(lambda rounds: sum(r.emitted for r in rounds) / len(rounds))

    def _by_category(self, figure: Callable[[list[Round]], float]) -> dict[str, float]:
        rounds: dict[str, list[Round]] = {}
        for category, of_run in self.by_run:
            rounds.setdefault(category, []).extend(of_run)
        return {category: figure(own) for category, own in sorted(rounds.items())}

    @cached_property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Share of the tokens drafted at each position of a round that were accepted."""
        shares = []
        for position in range(self.k):
            judged = [row.accepted > position for row in self.rounds if row.drafted > position]
            if judged:
                shares.append(sum(judged) / len(judged))
        return tuple(shares)

    @property
    def mean_length(self) -> float:
        """Emitted tokens per round."""
        return sum(row.emitted for row in self.rounds) / len(self.rounds)

    @cached_property
    def alpha(self) -> float:
        """Probability that a drafted token is accepted given that those before it were."""
        whole = [row.emitted for row in self.rounds if row.drafted == self.k]
        return sd_model.acceptance_of(statistics.fmean(whole), self.k) if whole else 0.0


@dataclass(frozen=True)
class SpeculationResult:
    """A draft and a target, against the target alone.

    Attributes:
        pairing: the measured pair.
        categories: of each prompt.
        pairs: the suite in both variants, in the order of the runs.
        gain: rate with the draft over that of the target alone, less 1.
        divergences: where greedy outputs diverge; empty if sampled, or stopped before the search.
        contexts: the resolved contexts, by `target` and `draft`.
        reloads: whether each pair began with a load.
        seed: of the random order.
        ran: run record of the target, and of a draft that is a model.
        interrupted: whether it was stopped from outside.
        watched: the machine during the pairs.
    """

    pairing: Pairing
    categories: tuple[str, ...]
    pairs: tuple[SuitePair, ...]
    gain: Estimate
    divergences: tuple[Divergence, ...]
    contexts: Mapping[str, ContextFacts]
    reloads: bool
    seed: int
    ran: tuple[Provenance, ...]
    interrupted: bool = False
    watched: Watched = NOT_WATCHED

    def __bool__(self) -> NoReturn:
        raise no_truth_value(self.pairing.label, "assert_sd_gain(speculation, when_ratio=2.5)")

    @property
    def runs(self) -> Iterable[PromptRun]:
        """Every prompt's run in every pair."""
        return (run for pair in self.pairs for run in pair.runs)

    @cached_property
    def counts(self) -> RoundCounts:
        """The drafted and accepted tokens of all speculative rounds."""
        rounds = [(self.categories[run.prompt], run.speculative.rounds) for run in self.runs]
        return RoundCounts(tuple(rounds), self.pairing.k)

    @property
    def alone_rate(self) -> float:
        """Rate of the target alone over all pairs, tok/s."""
        runs = [run.alone for run in self.runs]
        return _rate(runs)

    @property
    def speculative_rate(self) -> float:
        """Rate with the draft over all pairs, tok/s."""
        return _rate([run.speculative for run in self.runs])

    @cached_property
    def ratio(self) -> Estimate:
        """Speed ratio: rate of the draft by itself over that of the target by itself."""
        return self._median([pair.ratio for pair in self.pairs], _TIMES)

    @cached_property
    def predicted_gain(self) -> Estimate:
        """Gain that acceptance and the costs of steps predict, each from its own pair."""
        return self._median([pair.predicted_gain for pair in self.pairs], CHANGE)

    @cached_property
    def verify(self) -> dict[int, Estimate]:
        """C: the cost of verifying a batch, by its positions, in steps of the target alone."""
        costs = [pair.verify for pair in self.pairs]
        sizes = sorted(costs[0])
        return {size: self._median([cost[size] for cost in costs], _TIMES) for size in sizes}

    @cached_property
    def c(self) -> Estimate:
        """The cost of a draft step in a round, in steps of the target alone."""
        return self._median([pair.c for pair in self.pairs], _TIMES)

    def accepted(self, category: str | None = None) -> Estimate:
        """Accepted of drafted tokens over the prompts of a category, or over all.

        Greedy runs of a prompt repeat one another, so that prompts count, and not runs.
        """
        runs = {run.prompt: run for run in self.runs}  # one of each
        hits = [
            [n < row.accepted for row in run.speculative.rounds for n in range(row.drafted)]
            for prompt, run in sorted(runs.items())
            if category in {None, self.categories[prompt]}
        ]
        return share_interval([own for own in hits if own], counted="prompts")

    def _median(self, values: list[float], unit: str) -> Estimate:
        return median_interval(values, unit=unit, counted="pairs")

    @property
    def drafting(self) -> float:
        """The mean cost of drafting in a round, in steps of the target alone."""
        return self.c.point * self.counts.drafted / len(self.counts.rounds)

    @property
    def verifying(self) -> float:
        """The mean cost of the rest of a round by prediction, in steps of the target alone.

        C(k + 1) where every round drafts k tokens. A lookup often drafts fewer, or none.
        """
        return self.counts.mean_length / (1 + self.predicted_gain.point) - self.drafting

    @property
    def break_even_ratio(self) -> float:
        """Speed ratio from which this draft, as often accepted, would gain; infinite if none.

        The present ratio times the cost of drafting over its break-even cost, at which the
        prediction is 0. For rounds that are all alike, and c the reciprocal of the ratio, that is
        `sd_model.break_even_ratio`.
        """
        return self._break_even(self.ratio.point, self.c.point, self.predicted_gain.point)

    @property
    def break_even(self) -> Estimate:
        """The break-even ratio with an interval over the pairs.

        Raises:
            MeasurementError: in some pair no ratio would be enough.
        """
        pairs = [self._break_even(p.ratio, p.c, p.predicted_gain) for p in self.pairs]
        if not all(map(math.isfinite, pairs)):
            raise MeasurementError(
                f"{self.pairing.label} has no break-even ratio",
                why="verifying costs as much as it saves, however fast the draft is",
                remedy="compare the acceptance, or the gain",
            )
        return self._median(pairs, _TIMES)

    def _break_even(self, ratio: float, c: float, predicted_gain: float) -> float:
        length = self.counts.mean_length
        drafting = c * self.counts.drafted / len(self.counts.rounds)
        spare = length - (length / (1 + predicted_gain) - drafting)
        return math.inf if spare <= sd_model.LEAST_SPARE else ratio * drafting / spare

    @property
    def best_k(self) -> tuple[int, float]:
        """Number of drafted tokens with the highest predicted gain, and that gain."""
        beside = statistics.median(pair.beside for pair in self.pairs)
        verify = {size: cost.point + beside for size, cost in self.verify.items()}
        return sd_model.best_k(self.counts.alpha, self.c.point, verify)

    @cached_property
    def time_split(self) -> dict[str, float]:
        """Shares of the speculative runs' time, by `PARTS`; `other` is the loop's own."""
        total = sum(run.speculative.elapsed_ns for run in self.runs)
        parts = [
            sum(round_.draft_ns for round_ in self.counts.rounds),
            sum(round_.verify_ns for round_ in self.counts.rounds),
            sum(round_.rollback_ns for round_ in self.counts.rounds),
        ]
        shares = [part / total for part in parts]
        return dict(zip(PARTS, [*shares, 1 - sum(shares)], strict=True))

    @cached_property
    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """The guard findings on the measurement."""
        findings = [divergence.guard_finding for divergence in self.divergences]
        findings += [guards.unequal_work(_work(r.speculative), _work(r.alone)) for r in self.runs]
        by_prompt = {run.prompt: run.speculative.tokens for run in self.runs}
        findings += [guards.degenerate_tokens(tokens) for tokens in by_prompt.values()]
        measured, alone = self.speculative_rate, self.alone_rate
        if self.counts.drafted:
            findings.append(self._beyond_bound())
        predicted = alone * (1 + self.predicted_gain.point)
        findings.append(guards.predicted_against_measured(predicted, measured))
        findings += (finding for ran in self.ran for finding in ran.guard_findings)
        return tuple(dict.fromkeys(finding for finding in findings if finding))

    def _beyond_bound(self) -> GuardFinding | None:
        """The finding that the acceptance does not allow the gain, over all runs and by the pairs.

        Runs of the target alone may have stalled, which hardly changes the gain's lower bound.
        """
        shown = self.gain.low if self.gain.has_interval else self.gain.point
        found = [
            guards.sd_bound(
                rate,
                self.alone_rate,
                k=self.pairing.k,
                drafted=self.counts.drafted,
                accepted=self.counts.accepted,
            )
            for rate in (self.speculative_rate, self.alone_rate * (1 + shown))
        ]
        return found[0] if all(found) else None


@dataclass(frozen=True)
class RemoteDraftingResult:
    """A draft on another machine, compared with the same draft here."""

    #: the suite in both variants; the draft here is the first of each run pair
    pairs: tuple[SuitePair, ...]
    ran: tuple[Provenance, ...]  #: run record with the draft there: target and draft

    @cached_property
    def change(self) -> Estimate:
        """Change of the rate of emitted tokens by the distance."""
        here, there = ([1e9 / ns for ns in self._ns_per("emitted", arm)] for arm in (0, 1))
        return paired_change_interval(here, there)

    @cached_property
    def per_token(self) -> Estimate:
        """The extra time of an emitted token, in ms."""
        return self._extra("emitted")

    @cached_property
    def per_drafted_token(self) -> Estimate:
        """The extra time of a drafted token, in ms: one graph that the server computes."""
        return self._extra("drafted")

    def _extra(self, counted: str) -> Estimate:
        here, there = (self._ns_per(counted, arm) for arm in (0, 1))
        extra_ms = [(far - near) / 1e6 for near, far in zip(here, there, strict=True)]
        return median_interval(extra_ms, unit="ms", counted="pairs")

    def _ns_per(self, counted: str, arm: int) -> list[float]:
        """Time of a variant's emitted, or drafted, token in each pair."""
        suites = [[run.both[arm] for run in pair.runs] for pair in self.pairs]
        return [
            sum(run.elapsed_ns for run in suite) / max(1, sum(getattr(r, counted) for r in suite))
            for suite in suites
        ]

    @property
    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """Outputs that differ: the variants did not do the same work."""
        found = {}
        for run in (run for pair in self.pairs for run in pair.runs):
            position = guards.first_divergence(*(done.tokens for done in run.both))
            if position is not None:
                found[run.prompt] = position
        return tuple(
            guards.Guard.DIVERGENT_OUTPUT.finding(
                f"prompt {prompt + 1}: from position {position} on the output with the draft "
                "there is another than with the draft here",
                "identical output at temperature 0",
            )
            for prompt, position in sorted(found.items())
        )

    def row(self, arm: int) -> str:
        """A variant's rate and acceptance in words."""
        runs = [run.both[arm] for pair in self.pairs for run in pair.runs]
        rate = statistics.median(1e9 / ns for ns in self._ns_per("emitted", arm))
        accepted, drafted = (sum(getattr(r, n) for r in runs) for n in ("accepted", "drafted"))
        return f"{rate:.1f} tok/s, {100 * accepted / max(1, drafted):.1f} % of drafts accepted"


def _step_ns(runs: Sequence[Generation]) -> float:
    return sum(run.elapsed_ns for run in runs) / sum(len(run.tokens) for run in runs)


def _rate(runs: list[Generation]) -> float:
    return metrics.tokens_per_second(
        sum(len(run.tokens) for run in runs), sum(run.elapsed_ns for run in runs)
    )


def _work(run: Generation) -> dict[str, int]:
    return {"tokens": len(run.tokens)}
